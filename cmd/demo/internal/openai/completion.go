package openai

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/kvactor/kvactor/messages"
)

// completionRequest is the body of a text completion.
type completionRequest struct {
	params
	Prompt   prompts `json:"prompt"`
	Logprobs *int    `json:"logprobs"`
	Echo     bool    `json:"echo"`
	Suffix   string  `json:"suffix"`
	BestOf   *int    `json:"best_of"`
}

// prompts are texts or tokens: one prompt or several.
type prompts struct {
	texts  []string
	tokens [][]messages.Token
}

// UnmarshalJSON reads the four forms of a prompt.
func (p *prompts) UnmarshalJSON(b []byte) error {
	var text texts
	var one []messages.Token
	switch {
	case json.Unmarshal(b, &text) == nil:
		p.texts = text
	case json.Unmarshal(b, &one) == nil:
		p.tokens = [][]messages.Token{one}
	case json.Unmarshal(b, &p.tokens) != nil:
		return errors.New("prompt is none of a text, a list of texts, a list of tokens, a list of lists of tokens")
	}
	return nil
}

// defaultTokens is how many tokens a text completion has unless max_tokens says so.
const defaultTokens = 16

func (q *completionRequest) check() *apiError {
	if e := q.params.check(); e != nil {
		return e
	}
	switch n := len(q.Prompt.texts) + len(q.Prompt.tokens); {
	case n == 0:
		return badParam("prompt", "it is missing")
	case n > maxPrompts:
		return badParam("prompt", "%d prompts, at most %d", n, maxPrompts)
	case q.Echo:
		return badParam("echo", "not supported")
	case q.Suffix != "":
		return badParam("suffix", "not supported")
	case q.BestOf != nil && *q.BestOf != q.choices():
		return badParam("best_of", "only what n is")
	case q.Logprobs != nil && (*q.Logprobs < 0 || *q.Logprobs > maxLogprobs):
		return badParam("logprobs", "%d is not within 0 and %d", *q.Logprobs, maxLogprobs)
	}
	return nil
}

// completions answers a text completion.
func (v *Server) completions(w http.ResponseWriter, r *http.Request) *apiError {
	var q completionRequest
	if e := v.accept(w, r, &q); e != nil {
		return e
	}
	list := q.Prompt.tokens
	for _, text := range q.Prompt.texts {
		tokens, err := v.config.Words.Encode(text)
		if err != nil {
			return badParam("prompt", "%v", err)
		}
		list = append(list, tokens)
	}
	g := v.newGeneration(&q.params, completionForm{})
	if q.Logprobs != nil {
		g.top = *q.Logprobs
	}
	for _, prompt := range list {
		request := v.request(&q.params, prompt, defaultTokens)
		if eos := v.config.Words.EOS; eos >= 0 {
			request.Stops = map[messages.Token]bool{eos: true}
		}
		g.add(request)
	}
	return v.serve(w, r, g)
}

// completionForm is how text completions look, in streams and outside.
type completionForm struct{}

func (completionForm) prefix() string { return "cmpl-" }

func (completionForm) object(bool) string { return "text_completion" }

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

func (completionForm) first(int) any { return nil }

func (completionForm) part(p *piece) any {
	return completionChoice{p.choice, p.text, completionLogprobsOf(p.logprobs), finish(p.finish)}
}

func (f completionForm) whole(p *piece) any { return f.part(p) }

func completionLogprobsOf(list []logprob) *completionLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &completionLogprobs{}
	for _, l := range list {
		out.Tokens = append(out.Tokens, l.chosen.form().Token)
		out.TokenLogprobs = append(out.TokenLogprobs, l.chosen.logprob)
		out.TextOffset = append(out.TextOffset, l.offset)
		top := map[string]float64{}
		for _, t := range l.top {
			if key := t.form().Token; top[key] == 0 || top[key] < t.logprob {
				top[key] = t.logprob // tokens that are no text by themselves look alike
			}
		}
		out.TopLogprobs = append(out.TopLogprobs, top)
	}
	return out
}
