package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// form is how a kind of completions looks.
type form interface {
	prefix() string            // of identifiers
	object(stream bool) string // type of the answer
	first(choice int) any      // first event of a choice; nil: none
	part(*piece) any           // a part of a choice in a stream
	whole(*piece) any          // a choice outside of streams
	prompt(*envelope, *prompt) // tells of a prompt, if that is not a part of choices
}

// envelope is an answer, or one event of a stream.
type envelope struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []any           `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
	promptFields
}

// serve generates and answers. A client that goes, or the timeout, cancels.
func (v *Server) serve(w http.ResponseWriter, r *http.Request, g *generation) *apiError {
	ctx, cancel := context.WithTimeout(r.Context(), v.config.Timeout)
	defer cancel()
	for i := range g.requests {
		if err := v.scheduler.Submit(ctx, g.requests[i]); err != nil {
			cancel() // those before
			return refusal(err)
		}
	}
	e := envelope{ID: newID(g.form.prefix()), Created: time.Now().Unix(), Model: v.config.Name,
		Object: g.form.object(g.request.stream)}
	if g.request.stream {
		return v.stream(ctx, w, g, e)
	}
	whole := make([]piece, len(g.choices))
	for i := range whole {
		whole[i].choice = i
	}
	for open := true; open; {
		var list []piece
		var failed error
		if list, open, failed = g.take(ctx.Done()); failed != nil {
			return refusal(failed)
		}
		for _, p := range list {
			c := &whole[p.choice]
			c.text, c.finish, c.logprobs = c.text+p.text, p.finish, append(c.logprobs, p.logprobs...)
			if c.tokens = append(c.tokens, p.tokens...); p.prompt != nil {
				c.prompt = p.prompt
			}
		}
	}
	for i := range whole {
		e.Choices = append(e.Choices, g.form.whole(&whole[i]))
		g.form.prompt(&e, whole[i].prompt)
	}
	e.Usage = g.total()
	reply(w, e)
	return nil
}

// total is the usage as JSON.
func (g *generation) total() json.RawMessage {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage.Total = g.usage.Prompt + g.usage.Completion
	text, err := json.Marshal(g.usage)
	if err != nil {
		panic(err) // numbers are always written
	}
	return text
}

// stream answers by server-sent events. A request that fails before its first event
// has a status of its own; later the error is an event.
func (v *Server) stream(
	ctx context.Context, w http.ResponseWriter, g *generation, e envelope,
) *apiError {
	list, open, failed := g.take(ctx.Done())
	if failed != nil {
		return refusal(failed)
	}
	s := &events{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	if g.request.usage {
		e.Usage = json.RawMessage("null")
	}
	said := make([]bool, len(g.choices))
	for {
		for i := range list {
			p := &list[i]
			if first := g.form.first(p.choice); first != nil && !said[p.choice] {
				e.Choices = []any{first}
				s.send(e)
			}
			said[p.choice] = true
			e.Choices = []any{g.form.part(p)}
			g.form.prompt(&e, p.prompt)
			s.send(e)
		}
		if failed != nil {
			s.send(refusal(failed).body())
			return nil
		}
		if !open || s.err != nil {
			break
		}
		list, open, failed = g.take(ctx.Done())
	}
	if g.request.usage {
		e.Choices, e.Usage = []any{}, g.total()
		s.send(e)
	}
	s.write("data: [DONE]\n\n")
	return nil
}

// events writes server-sent events. After an error it writes nothing: the client has
// gone, or reads too slowly.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (s *events) send(body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and finite numbers are always written
	}
	s.write("data: " + string(text) + "\n\n")
}

func (s *events) write(text string) {
	if s.err != nil {
		return
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(slowClient)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		s.err = err
		return
	}
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.control.Flush()
	}
}
