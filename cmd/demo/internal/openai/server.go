package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// Config is what a server serves, and its limits.
type Config struct {
	Name  string // of the model
	Words *token.Tokenizer
	Form  token.Form
	// MaxLen is the longest sequence in tokens, prompt and answer.
	MaxLen int
	// Timeout bounds a request. 0: ten minutes.
	Timeout time.Duration
	// Healthy tells why requests cannot be served; nil: they can, as long as the
	// scheduler takes them.
	Healthy func(context.Context) error
	// Operations change what is cached in this engine: clients can make answers slow with them, not
	// wrong. Nil: their paths do not exist.
	Operations *kvactor.Engine
	// Origins are those whose pages browsers let read the answers; "*": all.
	Origins []string
}

// Limits of a request.
const (
	maxBody     = 4 << 20 // bytes; a prompt of a million tokens has about as many
	maxPrompts  = 64
	maxStops    = 16
	maxStopLen  = 256 // bytes
	maxSalt     = 1024
	maxLogprobs = 20
)

// slowClient is how long a client may take to send its request, or to read one event
// of a stream.
const slowClient = 30 * time.Second

// Server answers requests. It is an http.Handler; Handle adds others beside it.
type Server struct {
	config    Config
	scheduler *scheduler.Scheduler
	mux       *http.ServeMux
	created   int64
}

// New makes a server on a scheduler that runs.
func New(s *scheduler.Scheduler, c Config) *Server {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.Healthy == nil {
		c.Healthy = func(context.Context) error { return nil }
	}
	v := &Server{config: c, scheduler: s, mux: http.NewServeMux(), created: time.Now().Unix()}
	v.only("POST", "/v1/completions", v.completions)
	v.only("POST", "/v1/chat/completions", v.chat)
	v.only("GET", "/v1/models", v.models)
	v.only("GET", "/v1/models/{name...}", v.model)
	v.only("POST", "/tokenize", v.tokenize)
	v.only("POST", "/detokenize", v.detokenize)
	v.only("GET", "/tokenizer_info", v.tokenizerInfo)
	v.only("GET", "/healthz", v.health)
	v.only("GET", "/health", v.health)
	if c.Operations != nil {
		v.only("POST", "/reset_prefix_cache", v.reset)
		v.only("POST", "/invalidate_prefix_cache", v.invalidate)
		v.only("POST", "/set_weights", v.setWeights)
	}
	v.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, &apiError{status: http.StatusNotFound, kind: invalid,
			message: "there is no " + r.Method + " " + r.URL.Path})
	}))
	return v
}

// Handle adds a handler for a pattern of http.ServeMux.
func (v *Server) Handle(pattern string, h http.Handler) { v.mux.Handle(pattern, h) }

// ServeHTTP answers a request.
func (v *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !v.cors(w, r) {
		v.mux.ServeHTTP(w, r)
	}
}

// only adds a handler for one method, and HEAD with GET. Others are refused in
// OpenAI's form.
func (v *Server) only(method, path string, h func(http.ResponseWriter, *http.Request) *apiError) {
	v.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			fail(w, &apiError{status: http.StatusMethodNotAllowed, kind: invalid,
				message: path + " takes " + method})
			return
		}
		if e := h(w, r); e != nil {
			fail(w, e)
		}
	}))
}

func (v *Server) health(w http.ResponseWriter, r *http.Request) *apiError {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	if v.scheduler.Stopping() {
		return refusal(scheduler.ErrStopping)
	}
	if err := v.config.Healthy(ctx); err != nil {
		return &apiError{status: http.StatusServiceUnavailable, kind: serverSide, message: err.Error()}
	}
	reply(w, map[string]string{"status": "ok"})
	return nil
}

// modelCard is what is said of a model.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	MaxLen  int    `json:"max_model_len"` // as vLLM spells it
}

func (v *Server) card() modelCard {
	return modelCard{v.config.Name, "model", v.created, "kvactor", v.config.MaxLen}
}

func (v *Server) models(w http.ResponseWriter, _ *http.Request) *apiError {
	reply(w, map[string]any{"object": "list", "data": []modelCard{v.card()}})
	return nil
}

func (v *Server) model(w http.ResponseWriter, r *http.Request) *apiError {
	if e := v.known(r.PathValue("name")); e != nil {
		return e
	}
	reply(w, v.card())
	return nil
}

// known refuses the name of another model.
func (v *Server) known(name string) *apiError {
	if name == v.config.Name {
		return nil
	}
	return &apiError{
		status: http.StatusNotFound, kind: invalid, code: "model_not_found", param: "model",
		message: "the model `" + name + "` does not exist; there is `" + v.config.Name + "`",
	}
}

// Types of errors, as OpenAI has them.
const (
	invalid    = "invalid_request_error"
	limited    = "rate_limit_error"
	serverSide = "server_error"
)

// apiError is an error in OpenAI's form.
type apiError struct {
	status                     int
	kind, code, param, message string
}

// body is the JSON of an error. What is not set is null there.
func (e *apiError) body() any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{"message": e.message, "type": e.kind,
		"param": null(e.param), "code": null(e.code)}}
}

func fail(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	write(w, e.status, e.body())
}

func reply(w http.ResponseWriter, body any) { write(w, http.StatusOK, body) }

func write(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and finite numbers are always written
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error: the client has gone
}

// refusal is what an error of the scheduler or of a choice means to a client.
func refusal(err error) *apiError {
	switch {
	case errors.Is(err, scheduler.ErrFull):
		return &apiError{status: http.StatusTooManyRequests, kind: limited, code: "rate_limit_exceeded",
			message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &apiError{status: http.StatusServiceUnavailable, kind: serverSide,
			message: scheduler.ErrStopping.Error()}
	case errors.Is(err, scheduler.ErrStopping), errors.Is(err, messages.ErrClosed):
		return &apiError{status: http.StatusServiceUnavailable, kind: serverSide, message: err.Error()}
	case errors.Is(err, messages.ErrTooLong):
		return &apiError{status: http.StatusBadRequest, kind: invalid, code: "context_length_exceeded",
			message: err.Error()}
	case errors.Is(err, messages.ErrBadRequest), errors.Is(err, messages.ErrNotSupported):
		return &apiError{status: http.StatusBadRequest, kind: invalid, message: err.Error()}
	case errors.Is(err, messages.ErrOutOfPages):
		return &apiError{status: http.StatusBadRequest, kind: invalid, code: "context_length_exceeded",
			message: "the request does not fit the cache: " + err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: http.StatusGatewayTimeout, kind: serverSide, code: "timeout",
			message: "the request took too long"}
	}
	return &apiError{status: http.StatusInternalServerError, kind: serverSide, message: err.Error()}
}

// newID makes the identifier of an answer.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
