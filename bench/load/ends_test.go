package load

import (
	"context"
	"errors"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
)

// end verifies what is stored, checks that nothing is held, and closes the engine.
func (w *world) end() {
	w.drain()
	if !w.stopped() {
		w.verify("stored", false)
	}
	w.drain()
	w.inspect()
	w.close()
}

// verify reads all that prompts can reuse, at some lengths of each that is remembered.
func (w *world) verify(label string, fetch bool) {
	h := newHost(w, 99)
	for _, p := range w.prompts {
		for cut := range 3 {
			q := p
			if cut > 0 {
				q.tokens = p.tokens[:1+h.rand.IntN(len(p.tokens))]
				q.items = inside(p.items, len(q.tokens))
			}
			if fetch {
				_, err := actors.StoreOf(w.engine.Actors()).Fetch(context.Background(), q.prefix())
				if err != nil && !h.faulty(err) {
					w.problem("fetch: %v", err)
				}
			}
			h.read(label, q)
		}
		w.drain()
		if w.stopped() {
			return
		}
	}
}

// read admits a prompt, reads what it reuses, and releases it.
func (h *host) read(label string, p prompt) {
	n := min(len(p.tokens), maxSeqLen-1)
	p.tokens = append(p.tokens[:n:n], 7)
	p.items = inside(p.items, n)
	var s *kvactor.Sequence
	err := h.w.retried(func(context.Context) (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s, err = h.w.engine.Admit(ctx, p.request())
		return err
	})
	switch {
	case errors.Is(err, kvactor.ErrOutOfPages):
		h.w.count(label+", refused", 1)
		return
	case err != nil:
		if !h.faulty(err) {
			h.w.problem("%s: admission: %v", label, err)
		}
		return
	}
	c := &chat{prompt: p, seq: s, written: s.Reused(), beams: [][]uint64{p.extend(nil, p.tokens)}}
	cross := s.Admitted().Cross
	c.encoded = cross == nil || cross.ReusedTokens > 0
	if n = s.Reused(); n > 0 {
		h.launch(label, []part{{c, n, -1}})
		h.w.count(label+" tokens", n)
	}
	steps := []kvactor.Step{{Sequence: s, After: c.last, Discard: true}}
	h.steps("release", steps, h.w.engine.Release)
	if err := steps[0].Err; err != nil && !h.faulty(err) {
		h.w.problem("%s: release: %v", label, err)
	}
}

// inspect checks the engine while nothing runs.
func (w *world) inspect() {
	if err := w.retried(w.engine.Check); err != nil {
		w.problem("check: %v", err)
	}
	var stats kvactor.Stats
	err := w.retried(func(ctx context.Context) (err error) {
		stats, err = w.engine.Stats(ctx)
		return err
	})
	if err != nil {
		w.problem("stats: %v", err)
	}
	if stats.Sequences != 0 || stats.Waiting != 0 {
		w.problem("%d sequences run and %d calls wait at the end", stats.Sequences, stats.Waiting)
	}
	for _, p := range stats.Pools {
		if p.Primary.Used != 0 || p.Secondary.Used != 0 {
			w.problem("pool %s: %d device pages and %d host pages are held at the end",
				p.Name, p.Primary.Used, p.Secondary.Used)
		}
		w.count("pages evicted", int(p.Evicted))
		w.count("pages offloaded", int(p.Offloaded))
		w.count("pages onboarded", int(p.Onboarded))
	}
	w.count("recoveries", int(stats.Restarts))
	if stats.Store != nil {
		w.count("objects saved", int(stats.Store.SavedObjects))
		w.count("objects fetched", int(stats.Store.FetchedObjects))
		if stats.Store.Rejected > 0 {
			w.problem("%d bodies of the store were rejected", stats.Store.Rejected)
		}
	}
}

// close ends the engine and the device, and asks the checker.
func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	leaked, err := w.engine.Close(ctx)
	if err != nil || leaked != 0 {
		w.problem("close: %d pages leaked, %v", leaked, err)
	}
	if w.checker != nil {
		for i, text := range w.checker.Problems() {
			if i == 3 {
				break
			}
			w.problem("checker: %s", text)
		}
	}
	if err := w.device.Close(); err != nil {
		w.problem("close of the device: %v", err)
	}
}

// reopen opens another engine on the same store, which must find nothing wrong in it.
func (w *world) reopen() {
	w.copies, w.panics, w.auto, w.room = false, false, 0, 0
	w.checker = nil
	if err := w.open(); err != nil {
		w.problem("open again: %v", err)
		return
	}
	w.rebalance = false
	w.verify("fetched", true)
	w.drain()
	w.inspect()
	w.close()
}
