package daemon

import (
	"context"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// handle is what a session holds under a number.
type handle struct {
	sequence *kvactor.Sequence // nil: a pin
	write    bool              // the sequence is a write, else a claim
	tail     bool              // of a write: it is written as a whole
	pin      kvactor.PinID
}

// unfinished tells whether the client may still be writing pages.
func (h *handle) unfinished() bool { return h.write && h.sequence.Computed() < h.sequence.Len() }

// keep gives a handle out.
func (s *session) keep(h *handle) uint64 {
	n := s.daemon.handles.Add(1)
	s.handles[n] = h
	return n
}

// sequenceOf finds a claim or a write. Handles of other sessions are unknown.
func (s *session) sequenceOf(n uint64) (*handle, *wire.Error) {
	if h := s.handles[n]; h != nil && h.sequence != nil {
		return h, nil
	}
	return nil, errorf(codeHandle, "the session has no claim and no write %d", n)
}

func (s *session) writeOf(n uint64) (*handle, *wire.Error) {
	if h := s.handles[n]; h != nil && h.write {
		return h, nil
	}
	return nil, errorf(codeHandle, "the session has no write %d", n)
}

func (s *session) pinOf(n uint64) (*handle, *wire.Error) {
	if h := s.handles[n]; h != nil && h.sequence == nil {
		return h, nil
	}
	return nil, errorf(codeHandle, "the session has no pin %d", n)
}

// full refuses handles beyond the bound; coming are those that the step gives out beside.
func (s *session) full(coming int) *wire.Error {
	if n := len(s.handles) + coming; n >= s.daemon.config.Handles {
		return errorf(codeLimit, "the session holds %d claims, writes and pins", n)
	}
	return nil
}

// release ends sequences, and forgets what was not committed.
func (in *instance) release(ctx context.Context, list []*handle) error {
	steps := make([]kvactor.Step, 0, len(list))
	for _, h := range list {
		steps = append(steps, kvactor.Step{Sequence: h.sequence, Discard: h.unfinished()})
	}
	if len(steps) == 0 {
		return nil
	}
	return in.note(in.engine.Release(ctx, steps))
}

// releaseAll gives back everything that the session holds.
func (s *session) releaseAll() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var over []*handle
	for n, h := range s.handles {
		delete(s.handles, n)
		if h.sequence == nil {
			_ = s.in.note(s.in.engine.Unpin(ctx, h.pin))
			continue
		}
		over = append(over, h)
	}
	_ = s.in.release(ctx, over) // each is released, or the engine has failed
	if s.reader != 0 {
		_ = s.in.note(s.in.engine.CloseReader(ctx, s.reader))
	}
}
