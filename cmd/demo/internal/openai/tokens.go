package openai

import (
	"net/http"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// tokenized is the answer of /tokenize, as vLLM's.
type tokenized struct {
	Count  int              `json:"count"`
	MaxLen int              `json:"max_model_len"`
	Tokens []messages.Token `json:"tokens"`
	Texts  []string         `json:"token_strs"`
}

// named reads the fields of a body, whose model may be left out.
func (v *Server) named(w http.ResponseWriter, r *http.Request, fields ...field) *apiError {
	o, e := read(w, r)
	if e != nil {
		return e
	}
	name := v.config.Name
	if e := o.fill("", append(fields, field{"model", &name, nil})); e != nil {
		return e
	}
	return v.known(name)
}

// tokenize answers the tokens of a text or of a chat.
func (v *Server) tokenize(w http.ResponseWriter, r *http.Request) *apiError {
	var chat request
	var prompt *string
	specials, texts := true, false
	e := v.named(w, r,
		field{"prompt", &prompt, nil},
		field{"messages", chat.readMessages, nil},
		field{"add_special_tokens", &specials, nil},
		field{"return_token_strs", &texts, nil},
		field{"add_generation_prompt", unserved{"true"}, nil},
		field{"continue_final_message", unserved{"false"}, nil},
	)
	switch {
	case e != nil:
		return e
	case (prompt == nil) == (len(chat.messages) == 0):
		return badParam("prompt", "either it or messages must be there")
	case prompt == nil:
		text := v.config.Form.Write(chat.messages)
		prompt = &text
	}
	out := tokenized{MaxLen: v.config.MaxLen}
	if out.Tokens, e = v.encode("prompt", *prompt, !specials); e != nil {
		return e
	}
	if out.Count = len(out.Tokens); out.Count == 0 {
		out.Tokens = []messages.Token{}
	}
	for _, t := range out.Tokens {
		if texts {
			out.Texts = append(out.Texts, tokenText(v.config.Words, t))
		}
	}
	reply(w, out)
	return nil
}

// tokenText is the text of one token, for JSON.
func tokenText(words *token.Tokenizer, t messages.Token) string {
	return scored{text: string(words.Append(nil, t))}.form().Token
}

// tokenizerInfo answers what lm-eval asks of a tokenizer before it uses /tokenize.
func (v *Server) tokenizerInfo(w http.ResponseWriter, _ *http.Request) *apiError {
	name := func(t messages.Token) any {
		if text := v.config.Words.Name(t); text != "" {
			return text
		}
		return nil
	}
	reply(w, map[string]any{
		"bos_token": name(v.config.Words.BOS), "eos_token": name(v.config.Words.EOS),
		"model_max_length": v.config.MaxLen,
	})
	return nil
}

// detokenize answers the text of tokens.
func (v *Server) detokenize(w http.ResponseWriter, r *http.Request) *apiError {
	var tokens []messages.Token
	if e := v.named(w, r, field{"tokens", &tokens, nil}); e != nil {
		return e
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= v.config.Words.Len() {
			return badParam("tokens", "%d is not one of %d tokens", t, v.config.Words.Len())
		}
	}
	reply(w, map[string]string{"prompt": v.config.Words.Decode(tokens)})
	return nil
}
