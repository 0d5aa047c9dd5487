package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// line is one request of a program, a line of JSON.
type line struct {
	Tokens  []messages.Token `json:"tokens"`
	Encoder []messages.Token `json:"encoder"`
	New     int              `json:"new"`
	Logits  bool             `json:"logits"`
	Salt    string           `json:"salt"`
}

// Lines answers requests, JSON lines, one after the other until the input ends:
//
//	{"tokens":[…],"encoder":[…],"new":40,"logits":true,"salt":"…"}
//	{"greedy":[…],"logits":[[…]…],"first_logits_position":n,"cached_tokens":n,"onboarded_pages":n}
//
// Logits are those of each position of the prompt that was computed and of each
// new token, from first_logits_position on. Empty lines and lines that begin with
// # are skipped. What is wrong with a request is answered as an error, and
// changes nothing.
func (r *Runner) Lines(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	to := bufio.NewWriterSize(out, 1<<16)
	for {
		text, err := lines.ReadBytes('\n')
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 && text[0] != '#' {
			_, _ = to.Write(append(r.answer(ctx, text), '\n')) // Flush returns the error
			if err := to.Flush(); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// answer serves one request.
func (r *Runner) answer(ctx context.Context, text []byte) []byte {
	var q line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
	if err == nil && d.More() {
		err = errors.New("more than one value in a line")
	}
	if err != nil {
		return failed(refusals.New(messages.ErrBadRequest, "%v", err))
	}
	if err := r.check(&q); err != nil {
		return failed(err)
	}
	a, err := r.generate(ctx, &q)
	if err != nil {
		return failed(err)
	}
	if problems := r.Hazards(); len(problems) > 0 {
		return failed(refusals.New(messages.ErrInternal, "%s", problems[0]))
	}
	return a
}

// check refuses what the model cannot answer.
func (r *Runner) check(q *line) error {
	m := r.Model
	switch {
	case len(q.Tokens) == 0:
		return refusals.New(messages.ErrBadRequest, "tokens: empty")
	case q.New < 0:
		return refusals.New(messages.ErrBadRequest, "new: %d is negative", q.New)
	case m.Encodes() && len(q.Encoder) == 0:
		return refusals.New(messages.ErrBadRequest, "encoder: missing, the model has one")
	case !m.Encodes() && q.Encoder != nil:
		return refusals.New(messages.ErrBadRequest, "encoder: the model has none")
	case q.New > r.Config.MaxLen || len(q.Tokens)+q.New > r.Config.MaxLen:
		return refusals.New(messages.ErrTooLong, "%d tokens and %d new ones, the longest sequence has %d",
			len(q.Tokens), q.New, r.Config.MaxLen)
	case len(q.Encoder) > r.Config.MaxLen:
		return refusals.New(messages.ErrTooLong, "%d encoder tokens, at most %d", len(q.Encoder),
			r.Config.MaxLen)
	}
	if err := m.CheckTokens(q.Tokens); err != nil {
		return refusals.New(messages.ErrBadRequest, "tokens: %v", err)
	}
	if err := m.CheckTokens(q.Encoder); err != nil {
		return refusals.New(messages.ErrBadRequest, "encoder: %v", err)
	}
	return nil
}

// generate computes the answer. The sequence is released whatever happens.
func (r *Runner) generate(ctx context.Context, q *line) (text []byte, err error) {
	s, err := r.Admit(ctx, Request{Tokens: q.Tokens, Encoder: q.Encoder, Salt: q.Salt})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Release(context.WithoutCancel(ctx), s)) }()
	s.AllLogits = q.Logits
	if err := r.Prefill(ctx, s); err != nil {
		return nil, err
	}
	a := answer{Greedy: []messages.Token{}, First: s.Reused, Cached: s.Reused, Copied: s.Onboarded}
	a.add(q, s)
	for len(a.Greedy) < q.New {
		next := s.Next()
		a.Greedy = append(a.Greedy, next)
		// The last token is computed only for its logits.
		if len(a.Greedy) == q.New && !q.Logits {
			break
		}
		if err := r.Extend(ctx, s, next); err != nil {
			return nil, err
		}
		a.add(q, s)
	}
	return json.Marshal(a)
}

// answer is one of generate.
type answer struct {
	Greedy []messages.Token `json:"greedy"`
	Logits []row            `json:"logits,omitempty"`
	First  int              `json:"first_logits_position"`
	Cached int              `json:"cached_tokens"`
	Copied int              `json:"onboarded_pages"`
}

// add adds the logits of a step, if they were asked for.
func (a *answer) add(q *line, s *Sequence) {
	for _, logits := range s.Logits {
		if q.Logits {
			a.Logits = append(a.Logits, logits)
		}
	}
}

// row is numbers that JSON has all digits of, as float64, so that reading them back, as either,
// gives the same bits. JSON has no infinity: it becomes the largest number, and NaN null.
type row []float32

// MarshalJSON implements json.Marshaler.
func (r row) MarshalJSON() ([]byte, error) {
	wide := make([]any, len(r))
	for i, x := range r {
		if x == x {
			wide[i] = float64(min(max(x, -math.MaxFloat32), math.MaxFloat32))
		}
	}
	return json.Marshal(wide)
}

// failed writes an error with its code.
func failed(err error) []byte {
	code, text := messages.ErrInternal, err.Error()
	var refused *messages.Refusal
	if errors.As(err, &refused) {
		code, text = refused.Code, refused.Message
	}
	b, err := json.Marshal(
		map[string]any{"error": map[string]string{"code": string(code), "message": text}})
	if err != nil {
		panic(err) // strings are always written
	}
	return b
}
