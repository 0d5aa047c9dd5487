package load

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
)

// admit admits a prompt or a batch of them.
func (h *host) admit() {
	batch := make([]kvactor.Admission, 1+h.rand.IntN(2)*h.rand.IntN(3))
	prompts := make([]prompt, len(batch))
	for i := range batch {
		prompts[i] = h.draw()
		batch[i].Request = h.request(&prompts[i])
	}
	// A host that holds nothing may wait as long as it takes; one that holds pages may
	// be what the others wait for.
	patience := time.Duration(h.rand.IntN(3000)) * time.Microsecond
	free := len(h.running) == 0 && len(h.pins) == 0 && !h.w.rebalance
	if free {
		patience = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = h.w.engine.AdmitBatch(ctx, batch)
	for i := range batch {
		err := batch[i].Err
		h.w.count("admit"+outcome(err), 1)
		switch {
		case err == nil:
			h.begin(prompts[i], batch[i].Request, batch[i].Sequence)
		case errors.Is(err, context.DeadlineExceeded):
			h.w.count("admit, waited in vain", 1)
			if free {
				h.w.problem("admission: waits for %v", patience)
			}
		case errors.Is(err, kvactor.ErrOutOfPages):
			if len(h.running) > 0 && h.rand.IntN(2) == 0 {
				h.release(h.one())
			}
		case !h.faulty(err):
			h.w.problem("admission: %v", err)
		}
	}
}

// request draws the fields of an admission.
func (h *host) request(p *prompt) kvactor.AdmitRequest {
	r := p.request()
	if h.w.chunked || h.rand.IntN(4) == 0 {
		r.ChunkTokens = h.w.cache.TokensPerBlock * (1 + h.rand.IntN(3))
	}
	if h.w.beams > 1 && h.rand.IntN(2) == 0 {
		r.BeamWidth = h.w.beams
	}
	if h.rand.IntN(4) == 0 {
		r.Session = []string{"s", "t"}[h.rand.IntN(2)]
	}
	if h.rand.IntN(5) == 0 {
		r.Retention = &kvactor.Retention{Ranges: []kvactor.RetentionRange{{
			End: kvactor.EndOfPrompt, Priority: kvactor.Priority(h.rand.IntN(101)),
			Duration: time.Duration(h.rand.IntN(3)) * time.Millisecond,
		}}}
	}
	if h.w.store != nil && h.rand.IntN(3) == 0 {
		r.Fetch = time.Duration(h.rand.IntN(5000)) * time.Microsecond
	}
	return r
}

// begin keeps an admitted sequence.
func (h *host) begin(p prompt, r kvactor.AdmitRequest, s *kvactor.Sequence) {
	c := &chat{prompt: p, seq: s, chunk: r.ChunkTokens, written: s.Reused()}
	chain := p.extend(nil, p.tokens)
	for range max(1, r.BeamWidth) {
		c.beams = append(c.beams, chain)
	}
	if cross := s.Admitted().Cross; cross != nil {
		c.encoded = cross.ReusedTokens > 0
	}
	h.running = append(h.running, c)
	h.w.count("tokens reused", s.Reused())
	if c.chunk > 0 && len(c.beams) > 1 {
		h.w.count("beams in chunks", 1)
	}
}

// fork forks a sequence whose tokens are all computed.
func (h *host) fork() {
	if len(h.running) == 0 || len(h.running) > 6 {
		return
	}
	c := h.one()
	if len(c.beams) > 1 || c.seq.Computed() < c.seq.Len() || c.spoiled {
		return
	}
	steps := []kvactor.Step{{Sequence: c.seq, Forks: 1 + h.rand.IntN(2)}}
	h.steps("fork", steps, h.w.engine.Fork)
	switch err := steps[0].Err; {
	case err == nil:
		for _, s := range steps[0].Forked {
			f := *c
			f.seq, f.beams, f.tokens = s, slices.Clone(c.beams), slices.Clone(c.tokens)
			h.running = append(h.running, &f)
		}
	case errors.Is(err, kvactor.ErrOutOfPages):
	case h.faulty(err):
		h.release(c)
	default:
		h.w.problem("fork: %v", err)
	}
}

// ask makes a request about stored blocks, or hands a sequence over.
func (h *host) ask() {
	p, e := h.draw(), h.w.engine
	name, call := "stats", func(ctx context.Context) error { return errorOf(e.Stats(ctx)) }
	prefix := p.prefix()
	switch n := h.rand.IntN(14); {
	case n < 3:
		name, call = "pin", func(ctx context.Context) error { return h.pin(ctx, prefix) }
	case n < 5 && len(h.pins) > 0:
		h.unpin(h.pins[0])
		h.pins = h.pins[1:]
		return
	case n < 7:
		name, call = "prefetch", func(ctx context.Context) error {
			return errorOf(e.Prefetch(ctx, prefix))
		}
	case n < 8:
		name, call = "lookup", func(ctx context.Context) error { return errorOf(e.Lookup(ctx, prefix)) }
	case n < 9:
		selector := h.selector(&prefix)
		name, call = "invalidate", func(ctx context.Context) error {
			return errorOf(e.Invalidate(ctx, selector))
		}
	case n < 10 && h.rand.IntN(4) == 0:
		name, call = "reset", e.Reset
	case n < 11:
	case n < 12 && h.w.plan.cache.EventBufferMaxSize > 0:
		name, call = "events", func(ctx context.Context) error { return errorOf(e.Events(ctx, 0)) }
	case n < 13 && h.w.store != nil:
		store := actors.StoreOf(e.Actors())
		name, call = "fetch", func(ctx context.Context) error {
			return errorOf(store.Fetch(ctx, prefix))
		}
	default:
		h.handOver()
		return
	}
	err := h.call(name, call)
	if err != nil && !errors.Is(err, kvactor.ErrOutOfPages) && !h.faulty(err) {
		h.w.problem("%s: %v", name, err)
	}
}

// errorOf is the error of a call whose answer the host has no use for.
func errorOf[T any](_ T, err error) error { return err }

// selector draws what to invalidate.
func (h *host) selector(prefix *kvactor.Prefix) kvactor.Selector {
	switch h.rand.IntN(4) {
	case 0:
		return kvactor.Selector{Session: "s"}
	case 1:
		return kvactor.Selector{Salt: "a"}
	}
	return kvactor.Selector{Prefix: prefix}
}

// pin pins a prefix until later.
func (h *host) pin(ctx context.Context, p kvactor.Prefix) error {
	if len(h.pins) > 1 {
		return nil
	}
	pinned, err := h.w.engine.Pin(ctx, p)
	if err == nil {
		h.pins = append(h.pins, pinned.Pin)
	}
	return err
}

// unpin ends a pin. A failure of the tree ends pins, too.
func (h *host) unpin(pin kvactor.PinID) {
	err := h.call("unpin", func(ctx context.Context) error { return h.w.engine.Unpin(ctx, pin) })
	ended := h.w.panics && errors.Is(err, kvactor.ErrUnknownPin)
	if err != nil && !ended && !h.faulty(err) {
		h.w.problem("unpin: %v", err)
	}
}

// handOver exports a sequence and imports it into the same engine, where it goes on as another.
func (h *host) handOver() {
	if len(h.running) == 0 || len(h.running) > 6 {
		return
	}
	c := h.one()
	whole := len(c.beams) == 1 && c.seq.Computed() == c.seq.Len() && !c.spoiled
	if !whole || c.last == (kvactor.Ticket{}) {
		return
	}
	ctx := context.Background()
	if err := h.w.device.Sync(ctx, c.last); err != nil {
		h.w.problem("sync: %v", err)
		return
	}
	var stream bytes.Buffer
	exported, err := h.w.engine.Export(ctx, c.seq, &stream)
	h.w.count("export"+outcome(err), 1)
	if err != nil {
		if !h.unmoved(c, err) {
			h.w.problem("export: %v", err)
		}
		return
	}
	imported, err := h.w.engine.Import(ctx, &stream)
	h.w.count("import"+outcome(err), 1)
	switch {
	case err == nil:
		f := *c
		f.seq, f.beams, f.tokens = imported.Sequence, slices.Clone(c.beams), slices.Clone(c.tokens)
		h.running = append(h.running, &f)
		if !slices.Equal(imported.Tokens, c.tokens) {
			h.w.problem("import: tokens %v, exported %v", imported.Tokens, c.tokens)
		}
	case !h.unmoved(c, err):
		h.w.problem("import: %v", err)
	}
	if err := h.call("exported", exported.Release); err != nil && !h.faulty(err) {
		h.w.problem("release of an export: %v", err)
	}
}

// unmoved tells whether an error may come of a hand-over. A failure of the tree loses multimodal
// items, and sequences without theirs are not handed over.
func (h *host) unmoved(c *chat, err error) bool {
	lost := h.w.panics && len(c.items) > 0 && errors.Is(err, kvactor.ErrNotSupported)
	return lost || h.faulty(err) || errors.Is(err, kvactor.ErrOutOfPages)
}
