package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// request is one call on its way.
type request struct {
	kind    string
	record  messages.Request
	by      *application // nil: an observer
	detail  string
	answers int
	err     error
	then    func(err error) // when its host hears of the answer
}

// room reports whether the engine takes another call.
func (w *world) room() bool { return len(w.flying) < w.inFlight && !w.dead }

// submit sends a request. The caller has asked for room.
func (w *world) submit(r *request) {
	w.counts.add("requests, "+r.kind, 1)
	w.tellf("%s %s", r, r.detail)
	if r.by != nil {
		r.by.busy = true
	}
	w.flying = append(w.flying, r)
	err := w.engine.Submit(r.record, func(err error) {
		r.answers++
		r.err = err
		if r.answers > 1 {
			w.failf("%s was answered %d times", r, r.answers)
			return
		}
		w.answered = append(w.answered, r)
	})
	if err == nil {
		return
	}
	if code(err) != messages.ErrFailed || !w.mayFail() {
		w.failf("%s was not accepted: %w", r, err)
	}
	r.answers, r.err = 1, err
	w.answered = append(w.answered, r)
}

// String names the request.
func (r *request) String() string {
	if r.by == nil {
		return r.kind
	}
	return fmt.Sprintf("host %d: %s", r.by.number, r.kind)
}

// hear shows hosts what was answered, in the order of the answers.
func (w *world) hear() {
	for len(w.answered) > 0 && w.failure == nil {
		r := w.answered[0]
		w.answered = w.answered[1:]
		for i, f := range w.flying {
			if f == r {
				w.flying = append(w.flying[:i], w.flying[i+1:]...)
				break
			}
		}
		if r.by != nil {
			r.by.busy = false
		}
		w.tellf("%s answered: %v", r, r.err)
		w.checkError(r)
		r.then(r.err)
		if _, is := r.record.(*inspect.ReadStats); !is && w.room() {
			w.readStats()
		}
	}
}

// checkError looks at the error of the call as a whole: it may only be one that an
// actor's panic explains.
func (w *world) checkError(r *request) {
	switch code(r.err) {
	case "":
	case messages.ErrInternal:
		w.counts.add("aborted", 1)
		if w.injected == 0 {
			w.failf("%s was aborted: %w", r, r.err)
		}
	case messages.ErrFailed:
		w.dead = true
		if !w.mayFail() {
			w.failf("%s: %w", r, r.err)
		}
	default:
		w.failf("%s: %w", r, r.err)
	}
}

// mayFail reports whether the engine has had more panics than it takes.
func (w *world) mayFail() bool { return w.injected > w.maxRestarts }

// expect checks the refusal of one item against those that may come.
func (w *world) expect(what fmt.Stringer, err error, codes ...messages.Code) {
	c := code(err)
	if c == "" {
		return
	}
	w.tellf("  refused: %v", err)
	w.counts.add(fmt.Sprintf("refusals, %s", c), 1)
	for _, may := range codes {
		if c == may {
			w.shape(what, err)
			return
		}
	}
	if c == messages.ErrSequenceLost && w.lossy {
		w.counts.add("sequences lost", 1)
		return
	}
	w.failf("%s: unexpected refusal %s: %w", what, c, err)
}

// shape checks the numbers of an out_of_pages.
func (w *world) shape(what fmt.Stringer, err error) {
	var r *messages.Refusal
	if !errors.As(err, &r) || r.Code != messages.ErrOutOfPages {
		return
	}
	if r.Need <= r.Available || r.Available < 0 {
		w.failf("%s: refused, though %w", what, err)
	}
}

// code is the code of a refusal, "" for none.
func code(err error) messages.Code {
	if err == nil {
		return ""
	}
	var r *messages.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return messages.Code(err.Error())
}

// gone is the context of a caller who leaves at once: the engine takes the
// request, and the caller does not wait for it.
type gone struct{ asked bool }

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Deadline says that there is none.
func (*gone) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is over already.
func (*gone) Done() <-chan struct{} { return closedChannel }

// Value is nothing.
func (*gone) Value(any) any { return nil }

// Err says so only when asked again.
func (g *gone) Err() error {
	if !g.asked {
		g.asked = true
		return nil
	}
	return context.Canceled
}

// cancel sends a request whose caller has gone before it begins.
func (w *world) cancel(kind string, record messages.Request) {
	w.counts.add("cancelled, "+kind, 1)
	w.tellf("cancelled: %s", kind)
	if err := w.engine.Do(&gone{}, record); !errors.Is(err, context.Canceled) {
		if code(err) == messages.ErrFailed && w.mayFail() {
			w.dead = true
			return
		}
		w.failf("cancelled %s: %w", kind, err)
	}
}
