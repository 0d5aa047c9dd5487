package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
)

// chatRequest is the body of a chat completion.
type chatRequest struct {
	params
	Messages            []message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Logprobs            bool      `json:"logprobs"`
	TopLogprobs         int       `json:"top_logprobs"`

	Tools          []json.RawMessage `json:"tools"`
	Functions      []json.RawMessage `json:"functions"`
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a text, or a list of parts of which only texts are supported.
type content string

// UnmarshalJSON reads both forms.
func (c *content) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) == nil {
		if text != nil {
			*c = content(*text)
		}
		return nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("content is neither a text nor a list of parts")
	}
	for _, p := range parts {
		if p.Type != "text" {
			return errors.New("content: parts of type " + p.Type + " are not supported")
		}
		*c += content(p.Text)
	}
	return nil
}

// check refuses what is not supported.
func (q *chatRequest) check() *apiError {
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	if e := q.params.check(); e != nil {
		return e
	}
	switch {
	case len(q.Messages) == 0:
		return badParam("messages", "there are none")
	case len(q.Tools) > 0:
		return badParam("tools", "not supported")
	case len(q.Functions) > 0:
		return badParam("functions", "not supported")
	case q.ResponseFormat != nil && q.ResponseFormat.Type != "text":
		return badParam("response_format", "%q is not supported", q.ResponseFormat.Type)
	case q.TopLogprobs < 0 || q.TopLogprobs > maxLogprobs:
		return badParam("top_logprobs", "%d is not within 0 and %d", q.TopLogprobs, maxLogprobs)
	case q.TopLogprobs > 0 && !q.Logprobs:
		return badParam("top_logprobs", "only with logprobs")
	}
	return nil
}

// chat answers a chat completion.
func (v *Server) chat(w http.ResponseWriter, r *http.Request) *apiError {
	var q chatRequest
	if e := v.accept(w, r, &q); e != nil {
		return e
	}
	var list []token.Message
	for _, m := range q.Messages {
		switch m.Role {
		case "developer":
			m.Role = "system"
		case "system", "user", "assistant":
		default:
			return badParam("messages", "the role %q is not supported", m.Role)
		}
		list = append(list, token.Message{Role: m.Role, Text: string(m.Content)})
	}
	prompt, err := v.config.Words.Encode(v.config.Form.Write(list))
	if err != nil {
		return badParam("messages", "%v", err)
	}
	g := v.newGeneration(&q.params, chatForm{})
	if q.Logprobs {
		g.top = q.TopLogprobs
	}
	request := v.request(&q.params, prompt, v.config.MaxLen)
	request.Stops = v.config.Form.Stops(v.config.Words)
	g.add(request)
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
	c := chatChoice{Index: p.choice, Delta: &chatDelta{}, Logprobs: chatLogprobsOf(p.logprobs), Finish: finish(p.finish)}
	if p.text != "" || c.Logprobs != nil {
		c.Delta.Content = &p.text
	}
	return c
}

func (chatForm) whole(p *piece) any {
	return chatChoice{
		Index: p.choice, Message: &chatMessage{Role: "assistant", Content: p.text},
		Logprobs: chatLogprobsOf(p.logprobs), Finish: finish(p.finish),
	}
}

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
	out := tokenLogprob{Token: strings.ToValidUTF8(l.text, "\uFFFD"), Logprob: l.logprob, Bytes: []int{}}
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
