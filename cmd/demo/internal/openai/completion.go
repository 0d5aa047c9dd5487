package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

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
		return errors.New(
			"it is none of a text, a list of texts, a list of tokens, a list of lists of tokens")
	}
	return nil
}

func (p *prompts) check() *apiError {
	switch n := len(p.texts) + len(p.tokens); {
	case n == 0:
		return badParam("prompt", "it is missing")
	case n > maxPrompts:
		return badParam("prompt", "%d prompts, at most %d", n, maxPrompts)
	}
	return nil
}

// defaultTokens is how many tokens a text completion has unless max_tokens says so.
const defaultTokens = 16

// completions answers a text completion.
func (v *Server) completions(w http.ResponseWriter, r *http.Request) *apiError {
	q, e := v.accept(w, r, completion)
	if e != nil {
		return e
	}
	prompts := q.prompt.tokens
	for _, text := range q.prompt.texts {
		tokens, e := v.encode("prompt", text, q.noBOS)
		if e != nil {
			return e
		}
		prompts = append(prompts, tokens)
	}
	var ends map[messages.Token]bool
	if eos := v.config.Words.EOS; eos >= 0 {
		ends = map[messages.Token]bool{eos: true}
	}
	g := v.newGeneration(q, completionForm{})
	for _, prompt := range prompts {
		g.add(v.schedule(q, prompt, ends, defaultTokens))
	}
	return v.serve(w, r, g)
}

// encode makes tokens of a text that a parameter has.
func (v *Server) encode(param, text string, noBOS bool) ([]messages.Token, *apiError) {
	tokens, err := v.config.Words.Encode(text)
	if err != nil {
		return nil, badParam(param, "%v", err)
	}
	if words := v.config.Words; noBOS && words.AddBOS && len(tokens) > 0 && tokens[0] == words.BOS {
		tokens = tokens[1:]
	}
	return tokens, nil
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
	Tokens   []messages.Token    `json:"token_ids,omitempty"`
	promptFields
}

type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"` // null of a prompt's first token
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

func (completionForm) first(int) any { return nil }

func (completionForm) part(p *piece) any {
	return completionChoice{
		p.choice, p.text, completionLogprobsOf(p.logprobs), finish(p.finish), p.tokens,
		fieldsOf(p.prompt),
	}
}

func (f completionForm) whole(p *piece) any { return f.part(p) }

// prompt does nothing: each choice has its own.
func (completionForm) prompt(*envelope, *prompt) {}

func completionLogprobsOf(list []logprob) *completionLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &completionLogprobs{}
	for _, l := range list {
		out.Tokens = append(out.Tokens, l.chosen.form().Token)
		out.TextOffset = append(out.TextOffset, l.offset)
		if l.rank == 0 {
			out.TokenLogprobs, out.TopLogprobs = append(out.TokenLogprobs, nil), append(out.TopLogprobs, nil)
			continue
		}
		out.TokenLogprobs = append(out.TokenLogprobs, &l.chosen.logprob)
		// The chosen token is one of them, as in vLLM.
		top := map[string]float64{}
		for _, t := range append(l.top[:len(l.top):len(l.top)], l.chosen) {
			if x, is := top[t.form().Token]; !is || x < t.logprob {
				top[t.form().Token] = t.logprob // tokens that are no text by themselves look alike
			}
		}
		out.TopLogprobs = append(out.TopLogprobs, top)
	}
	return out
}

// promptFields are what is told of a prompt, as in vLLM.
type promptFields struct {
	Tokens   []messages.Token           `json:"prompt_token_ids,omitempty"`
	Logprobs []map[string]promptLogprob `json:"prompt_logprobs,omitempty"` // by token
}

type promptLogprob struct {
	Logprob float64 `json:"logprob"`
	Rank    int     `json:"rank"`
	Text    string  `json:"decoded_token"`
}

// fieldsOf writes what was asked for of a prompt; nil: nothing was.
func fieldsOf(p *prompt) (f promptFields) {
	if p == nil {
		return f
	}
	if p.ids {
		f.Tokens = p.tokens
	}
	if p.top < 0 {
		return f
	}
	for _, l := range p.logprobs {
		if l.rank == 0 {
			f.Logprobs = append(f.Logprobs, nil)
			continue
		}
		by := map[string]promptLogprob{}
		for i, s := range l.top[:min(p.top, len(l.top))] {
			by[strconv.Itoa(int(s.token))] = promptLogprob{s.logprob, i + 1, s.form().Token}
		}
		by[strconv.Itoa(int(l.chosen.token))] = promptLogprob{l.chosen.logprob, l.rank,
			l.chosen.form().Token}
		f.Logprobs = append(f.Logprobs, by)
	}
	return f
}
