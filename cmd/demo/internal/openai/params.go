package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// endpoint is one of the two that complete texts.
type endpoint int

const (
	completion endpoint = iota
	chat
)

// request is the body of a completion. One endpoint has no messages, the other no prompt.
type request struct {
	on       endpoint
	model    string
	prompt   prompts
	messages []token.Message
	sampling scheduler.Sampling
	salt     string
	// retention is kv_cache_retention_config.
	retention *messages.Retention

	n, bestOf                     int
	maxTokens, maxChat, minTokens int // −1: not said
	stop                          texts
	stopTokens                    []messages.Token
	ignoreEOS, noBOS              bool

	stream, usage bool
	options       bool // there are stream_options
	echo, ids     bool
	// top and promptTop are the alternatives of each token that are reported; −1: no logprobs.
	top, promptTop int
	chatLogprobs   bool
}

// newRequest is a request with the defaults.
func newRequest(on endpoint) *request {
	return &request{
		on: on, n: 1, bestOf: -1, maxTokens: -1, maxChat: -1, top: -1, promptTop: -1,
		sampling: scheduler.Sampling{
			Temperature: 1, TopP: 1, RepetitionPenalty: 1,
			Seed: rand.Uint64(), //nolint:gosec // a seed, not a secret
		},
	}
}

// fields are all parameters of an endpoint: those that are served, and those that are known and
// not served, with the values that are nevertheless accepted. Others are refused by name.
func (q *request) fields() []field {
	both := []field{
		{"model", &q.model, nil},
		{"n", &q.n, least(1)},
		{"max_tokens", &q.maxTokens, least(0)},
		{"min_tokens", &q.minTokens, least(0)},
		{"temperature", &q.sampling.Temperature, between(0, 2)},
		{"top_p", &q.sampling.TopP, above(0, 1)},
		{"top_k", &q.sampling.TopK, least(-1)},
		{"min_p", &q.sampling.MinP, between(0, 1)},
		{"repetition_penalty", &q.sampling.RepetitionPenalty, above(0, math.Inf(1))},
		{"frequency_penalty", &q.sampling.FrequencyPenalty, between(-2, 2)},
		{"presence_penalty", &q.sampling.PresencePenalty, between(-2, 2)},
		{"logit_bias", q.readBias, nil},
		{"seed", &seed{&q.sampling.Seed}, nil},
		{"stop", &q.stop, nil},
		{"stop_token_ids", &q.stopTokens, nil},
		{"ignore_eos", &q.ignoreEOS, nil},
		{"stream", &q.stream, nil},
		{"stream_options", q.readOptions, nil},
		{"prompt_logprobs", &q.promptTop, alternatives},
		{"return_token_ids", &q.ids, nil},
		{"cache_salt", q.readSalt, nil},
		{"kv_cache_retention_config", q.readRetention, nil},
		{"user", ignored{}, nil},
		{"request_id", ignored{}, nil},
		{"use_beam_search", unserved{"false"}, nil},
		{"length_penalty", unserved{"1"}, nil},
		{"bad_words", unserved{"[]"}, nil},
		{"include_stop_str_in_output", unserved{"false"}, nil},
		{"skip_special_tokens", unserved{"true"}, nil},
		{"spaces_between_special_tokens", unserved{"true"}, nil},
		{"priority", unserved{"0"}, nil},
		{"response_format", unserved{`{"type":"text"}`}, nil},
	}
	if q.on == completion {
		return append(both, q.completionFields()...)
	}
	return append(both, q.chatFields()...)
}

// alternatives is the rule of how many alternatives of a token are reported.
func alternatives(x float64) string {
	if x == -1 {
		return fmt.Sprintf("-1, the whole vocabulary, is not supported: at most %d", maxLogprobs)
	}
	return between(0, maxLogprobs)(x)
}

func (q *request) completionFields() []field {
	return []field{
		{"prompt", &q.prompt, nil},
		{"logprobs", &q.top, alternatives},
		{"echo", &q.echo, nil},
		{"best_of", &q.bestOf, nil},
		{"add_special_tokens", q.readSpecials, nil},
		{"suffix", unserved{`""`}, nil},
	}
}

func (q *request) chatFields() []field {
	return []field{
		{"messages", q.readMessages, nil},
		{"max_completion_tokens", &q.maxChat, least(1)},
		{"logprobs", &q.chatLogprobs, nil},
		{"top_logprobs", &q.top, alternatives},
		{"metadata", ignored{}, nil},
		{"store", ignored{}, nil},
		{"service_tier", ignored{}, nil},
		{"parallel_tool_calls", ignored{}, nil}, // there are no tools
		{"safety_identifier", ignored{}, nil},
		{"prompt_cache_key", ignored{}, nil},
		{"add_special_tokens", unserved{"false"}, nil},
		{"add_generation_prompt", unserved{"true"}, nil},
		{"continue_final_message", unserved{"false"}, nil},
		{"echo", unserved{"false"}, nil},
		{"modalities", unserved{`["text"]`}, nil},
		{"tools", unserved{"[]"}, nil},
		{"tool_choice", unserved{`"none"`, `"auto"`}, nil},
		{"functions", unserved{"[]"}, nil},
		{"function_call", unserved{`"none"`, `"auto"`}, nil},
	}
}

// accept reads a request and refuses it if it is for another model or asks for what is
// not supported. The model comes first: a client of another model has other mistakes.
func (v *Server) accept(w http.ResponseWriter, r *http.Request, on endpoint) (*request, *apiError) {
	o, e := read(w, r)
	if e != nil {
		return nil, e
	}
	q := newRequest(on)
	if e := (object{"model": o["model"]}).fill("", q.fields()); e != nil {
		return nil, e
	}
	if e := v.known(q.model); e != nil {
		return nil, e
	}
	if e := o.fill("", q.fields()); e != nil {
		return nil, e
	}
	return q, q.check()
}

// check refuses parameters that do not go together.
func (q *request) check() *apiError {
	if q.maxChat > 0 {
		q.maxTokens = q.maxChat
	}
	switch {
	case q.maxTokens == 0 && !q.echo:
		return badParam("max_tokens", "0 is less than 1, and there is no echo")
	case q.maxTokens >= 0 && q.minTokens > max(q.maxTokens, 1):
		return badParam("min_tokens", "%d is more than max_tokens %d", q.minTokens, q.maxTokens)
	case q.options && !q.stream:
		return badParam("stream_options", "only with stream")
	case q.promptTop >= 0 && q.stream:
		return badParam("prompt_logprobs", "not with stream")
	case q.on == chat && q.top >= 0 && !q.chatLogprobs && q.top > 0:
		return badParam("top_logprobs", "only with logprobs")
	case q.bestOf >= 0 && q.bestOf != q.n:
		return badParam("best_of", "only what n is")
	case len(q.stop) > maxStops:
		return badParam("stop", "%d texts, at most %d", len(q.stop), maxStops)
	case q.on == chat && len(q.messages) == 0:
		return badParam("messages", "there are none")
	}
	for _, s := range q.stop {
		if s == "" || len(s) > maxStopLen {
			return badParam("stop", "a text of %d bytes, not 1 to %d", len(s), maxStopLen)
		}
	}
	if q.on == chat && q.chatLogprobs {
		q.top = max(q.top, 0)
	} else if q.on == chat {
		q.top = -1
	}
	if q.on == completion {
		return q.prompt.check()
	}
	return nil
}

// seed is a number of 64 bits with a sign.
type seed struct{ bits *uint64 }

// UnmarshalJSON reads a seed.
func (s *seed) UnmarshalJSON(b []byte) error {
	var n int64
	err := json.Unmarshal(b, &n)
	*s.bits = uint64(n) //nolint:gosec // its bits
	return err
}

// texts is one text or a list of them.
type texts []string

// UnmarshalJSON reads both.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

func (q *request) readOptions(path string, value []byte) *apiError {
	var o object
	if json.Unmarshal(value, &o) != nil {
		return badParam(path, "it is not an object")
	}
	q.options = true
	return o.fill(path+".", []field{
		{"include_usage", &q.usage, nil},
		{"continuous_usage_stats", unserved{"false"}, nil},
		{"include_obfuscation", unserved{"false"}, nil},
	})
}

func (q *request) readSpecials(path string, value []byte) *apiError {
	specials := true
	e := (&field{into: &specials}).fill(path, value)
	q.noBOS = !specials
	return e
}

func (q *request) readSalt(path string, value []byte) *apiError {
	if e := (&field{into: &q.salt}).fill(path, value); e != nil {
		return e
	}
	if n := len(q.salt); n == 0 || n > maxSalt {
		return badParam(path, "it has %d bytes, not 1 to %d", n, maxSalt)
	}
	return nil
}

// readRetention reads what TensorRT-LLM's generate takes under that name.
func (q *request) readRetention(path string, value []byte) *apiError {
	var err error
	if q.retention, err = kvconfig.ReadRetentionJSON(bytes.NewReader(value)); err != nil {
		return badParam(path, "%v", err)
	}
	return nil
}

// readBias reads numbers by tokens. Those beyond 100 are as 100, as in vLLM.
func (q *request) readBias(path string, value []byte) *apiError {
	var bias map[string]float64
	if e := (&field{into: &bias}).fill(path, value); e != nil {
		return e
	}
	q.sampling.Bias = map[messages.Token]float64{}
	for name, x := range bias {
		t, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return badParam(path, "%q is no token", name)
		}
		q.sampling.Bias[messages.Token(t)] = max(-100, min(x, 100))
	}
	return nil
}

// schedule makes the scheduler's request of one prompt, which tokens end. Without max_tokens an
// answer has otherwise tokens, and never more than the longest sequence.
func (v *Server) schedule(
	q *request, prompt []messages.Token, ends map[messages.Token]bool, otherwise int,
) scheduler.Request {
	s := scheduler.Request{
		Tokens: prompt, Salt: q.salt, Retention: q.retention, Choices: q.n, New: otherwise,
		MinNew:       q.minTokens,
		Sampling:     q.sampling,
		Stops:        map[messages.Token]bool{},
		PromptLogits: q.promptTop >= 0 || q.echo && q.top >= 0,
	}
	if !q.ignoreEOS {
		for t := range ends {
			s.Stops[t] = true
		}
	}
	for _, t := range q.stopTokens {
		s.Stops[t] = true
	}
	s.Sampling.TopK = max(0, s.Sampling.TopK)
	if q.maxTokens >= 0 {
		s.New = q.maxTokens
	}
	// The scheduler refuses a prompt that is too long.
	s.New = max(1, min(s.New, v.config.MaxLen-len(prompt)))
	return s
}
