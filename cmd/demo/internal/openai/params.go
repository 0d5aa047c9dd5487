package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/messages"
)

// params are the parameters that both kinds of completions have.
type params struct {
	Model         string   `json:"model"`
	Stream        bool     `json:"stream"`
	StreamOptions *options `json:"stream_options"`
	N             *int     `json:"n"`
	Stop          texts    `json:"stop"`
	Seed          *int64   `json:"seed"`
	Temperature   *float64 `json:"temperature"`
	TopP          *float64 `json:"top_p"`
	MaxTokens     *int     `json:"max_tokens"`
	CacheSalt     *string  `json:"cache_salt"`

	// Refused unless they have the value that changes nothing.
	FrequencyPenalty float64            `json:"frequency_penalty"`
	PresencePenalty  float64            `json:"presence_penalty"`
	LogitBias        map[string]float64 `json:"logit_bias"`
}

type options struct {
	IncludeUsage bool `json:"include_usage"`
}

// texts is one text or a list of them.
type texts []string

// UnmarshalJSON reads both.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if *t = nil; one != nil {
			*t = texts{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// badParam refuses the value of a parameter.
func badParam(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalid, param: param, message: param + ": " + fmt.Sprintf(format, args...)}
}

// body is a request in the form of one endpoint.
type body interface {
	model() string
	check() *apiError
}

// model is the name of the model that the request asks for.
func (p *params) model() string { return p.Model }

// accept reads a request and refuses it if it is for another model or asks for what is
// not supported. The model comes first: a client of another model has other mistakes.
func (v *Server) accept(w http.ResponseWriter, r *http.Request, q body) *apiError {
	if e := read(w, r, q); e != nil {
		return e
	}
	if e := v.known(q.model()); e != nil {
		return e
	}
	return q.check()
}

// read decodes the body of a request.
func read(w http.ResponseWriter, r *http.Request, into any) *apiError {
	// A deadline of the whole connection would cancel requests that take longer.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(slowClient)) // not supported: a test
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	err := d.Decode(into)
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil && d.More():
		err = errors.New("more than one JSON value")
	case errors.As(err, &large):
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: invalid, message: fmt.Sprintf("the body has more than %d bytes", maxBody)}
	case errors.As(err, &kind) && kind.Field != "":
		return badParam(strings.TrimPrefix(kind.Field, "params."), "a %s is not expected here", kind.Value)
	}
	if err != nil {
		return &apiError{status: http.StatusBadRequest, kind: invalid, message: "the body cannot be read: " + err.Error()}
	}
	return nil
}

// check refuses values that are out of range or not supported.
func (p *params) check() *apiError {
	switch {
	case p.N != nil && *p.N < 1:
		return badParam("n", "%d is less than 1", *p.N)
	case p.Temperature != nil && (*p.Temperature < 0 || *p.Temperature > 2):
		return badParam("temperature", "%g is not within 0 and 2", *p.Temperature)
	case p.TopP != nil && (*p.TopP <= 0 || *p.TopP > 1):
		return badParam("top_p", "%g is not above 0 and at most 1", *p.TopP)
	case p.MaxTokens != nil && *p.MaxTokens < 1:
		return badParam("max_tokens", "%d is less than 1", *p.MaxTokens)
	case p.CacheSalt != nil && (*p.CacheSalt == "" || len(*p.CacheSalt) > maxSalt):
		return badParam("cache_salt", "it has %d bytes, not 1 to %d", len(*p.CacheSalt), maxSalt)
	case p.StreamOptions != nil && !p.Stream:
		return badParam("stream_options", "only with stream")
	case p.FrequencyPenalty != 0:
		return badParam("frequency_penalty", "not supported")
	case p.PresencePenalty != 0:
		return badParam("presence_penalty", "not supported")
	case len(p.LogitBias) > 0:
		return badParam("logit_bias", "not supported")
	case len(p.Stop) > maxStops:
		return badParam("stop", "%d texts, at most %d", len(p.Stop), maxStops)
	}
	for _, s := range p.Stop {
		if s == "" || len(s) > maxStopLen {
			return badParam("stop", "a text of %d bytes, not 1 to %d", len(s), maxStopLen)
		}
	}
	return nil
}

// usage tells whether a stream ends with the usage.
func (p *params) usage() bool { return p.StreamOptions != nil && p.StreamOptions.IncludeUsage }

// choices is the number of choices of each prompt.
func (p *params) choices() int {
	if p.N == nil {
		return 1
	}
	return *p.N
}

// request makes the scheduler's request of one prompt. Without max_tokens an answer
// has otherwise tokens, and never more than the longest sequence.
func (v *Server) request(p *params, prompt []messages.Token, otherwise int) scheduler.Request {
	q := scheduler.Request{Tokens: prompt, New: otherwise, Choices: p.choices(), Sampling: scheduler.Sampling{Temperature: 1, Seed: rand.Uint64()}} //nolint:gosec // a seed, not a secret
	if p.MaxTokens != nil {
		q.New = *p.MaxTokens
	}
	q.New = max(1, min(q.New, v.config.MaxLen-len(prompt))) // the scheduler refuses a prompt that is too long
	if p.Temperature != nil {
		q.Sampling.Temperature = *p.Temperature
	}
	if p.TopP != nil {
		q.Sampling.TopP = *p.TopP
	}
	if p.Seed != nil {
		q.Sampling.Seed = uint64(*p.Seed)
	}
	if p.CacheSalt != nil {
		q.Salt = *p.CacheSalt
	}
	return q
}
