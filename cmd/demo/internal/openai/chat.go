package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// readMessages reads the messages of a chat. Clients send answers back as they got them, with
// fields that say nothing.
func (q *request) readMessages(path string, value []byte) *apiError {
	return list(path, value, func(path string, o object) *apiError {
		var m token.Message
		given := false
		e := o.fill(path, []field{
			{"role", &m.Role, nil},
			{"content", func(path string, value []byte) (e *apiError) {
				given = true
				m.Text, e = readContent(path, value)
				return e
			}, nil},
			{"refusal", unserved{}, nil},
			{"audio", unserved{}, nil},
			{"annotations", unserved{"[]"}, nil},
			{"tool_calls", unserved{"[]"}, nil},
			{"function_call", unserved{}, nil},
			{"reasoning_content", unserved{`""`}, nil},
		})
		if e != nil {
			return e
		}
		switch m.Role {
		case "developer":
			m.Role = "system"
		case "system", "user", "assistant":
		default:
			return badParam(path+"role", "%q is not supported", m.Role)
		}
		// Only an answer may be empty: the model may have ended it at once.
		if !given && m.Role != "assistant" {
			return badParam(path+"content", "it is missing")
		}
		q.messages = append(q.messages, m)
		return nil
	})
}

// readContent reads a text, or a list of parts of which only texts are supported.
func readContent(path string, value []byte) (text string, e *apiError) {
	if json.Unmarshal(value, &text) == nil {
		return text, nil
	}
	e = list(path, value, func(path string, o object) *apiError {
		var kind, part string
		if e := (object{"type": o["type"]}).fill(path, []field{{"type", &kind, nil}}); e != nil {
			return e
		}
		if kind != "text" {
			return badParam(path+"type", "parts of type %q are not supported", kind)
		}
		e := o.fill(path, []field{{"type", &kind, nil}, {"text", &part, nil}})
		text += part
		return e
	})
	return text, e
}

// chat answers a chat completion.
func (v *Server) chat(w http.ResponseWriter, r *http.Request) *apiError {
	q, e := v.accept(w, r, chat)
	if e != nil {
		return e
	}
	prompt, e := v.encode("messages", v.config.Form.Write(q.messages), false)
	if e != nil {
		return e
	}
	g := v.newGeneration(q, chatForm{})
	g.add(v.schedule(q, prompt, v.config.Form.Stops(v.config.Words), v.config.MaxLen))
	return v.serve(w, r, g)
}

// chatForm is how chat completions look.
type chatForm struct{}

func (chatForm) prefix() string { return "chatcmpl-" }

func (chatForm) object(stream bool) string {
	if stream {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// chatChoice is a choice, whole or a part of it.
type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`

	Tokens []messages.Token `json:"token_ids,omitempty"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (chatForm) first(choice int) any {
	return chatChoice{Index: choice, Delta: &chatDelta{Role: "assistant", Content: new(string)}}
}

func (chatForm) part(p *piece) any {
	c := chatChoice{Index: p.choice, Delta: &chatDelta{}, Logprobs: chatLogprobsOf(p.logprobs),
		Finish: finish(p.finish), Tokens: p.tokens}
	if p.text != "" || c.Logprobs != nil {
		c.Delta.Content = &p.text
	}
	return c
}

func (chatForm) whole(p *piece) any {
	return chatChoice{
		Index: p.choice, Message: &chatMessage{Role: "assistant", Content: p.text},
		Logprobs: chatLogprobsOf(p.logprobs), Finish: finish(p.finish), Tokens: p.tokens,
	}
}

// prompt tells of the prompt once, since there is one.
func (chatForm) prompt(e *envelope, p *prompt) { e.promptFields = fieldsOf(p) }

func chatLogprobsOf(list []logprob) *chatLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &chatLogprobs{}
	for _, l := range list {
		c := chatLogprob{tokenLogprob: l.chosen.form(), Top: []tokenLogprob{}}
		for _, t := range l.top {
			c.Top = append(c.Top, t.form())
		}
		out.Content = append(out.Content, c)
	}
	return out
}

// form writes a token's text and its bytes, which may not be a text by themselves.
func (l scored) form() tokenLogprob {
	out := tokenLogprob{Token: strings.ToValidUTF8(l.text, "\uFFFD"), Logprob: l.logprob,
		Bytes: []int{}}
	for _, b := range []byte(l.text) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}

// finish is null until a choice is complete.
func finish(reason string) *string {
	if reason == "" {
		return nil
	}
	return &reason
}
