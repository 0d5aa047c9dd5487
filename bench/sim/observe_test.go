package sim

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// observe is what an application does that has no sequence at hand.
func (w *world) observe() {
	if !w.room() {
		return
	}
	switch n := w.rng.IntN(20); {
	case n < 3:
		w.lookup()
	case n < 6:
		w.pin()
	case n < 10:
		w.unpin()
	case n < 13:
		w.prefetch()
	case n < 15:
		w.invalidate()
	case n < 16:
		w.reset()
	default:
		w.readEvents()
	}
}

// ask sends an observer's request.
func (w *world) ask(kind string, record messages.Request, detail string, then func(r *request)) {
	if w.rng.IntN(15) == 0 {
		w.cancel(kind, record)
		return
	}
	r := &request{kind: kind, record: record, detail: detail}
	r.then = func(err error) {
		if err == nil {
			then(r)
		}
	}
	w.submit(r)
}

func (p prompt) String() string {
	s := fmt.Sprintf("%v %v", p.Namespace, p.Tokens)
	if len(p.Multimodal) > 0 {
		s += fmt.Sprintf(" item %d+%d", p.Multimodal[0].Start, p.Multimodal[0].Length)
	}
	if len(p.Encoder) > 0 {
		s += fmt.Sprintf(" encoder %v %v", p.Encoder, p.EncoderItems)
	}
	return s
}

func (w *world) lookup() {
	p := w.drawPrefix()
	m := &messages.Lookup{Prefix: p.Prefix}
	w.ask("lookup", m, p.String(), func(r *request) {
		w.expect(r, m.Err)
		f := m.Found
		if f.MatchedTokens != f.PrimaryTokens+f.SecondaryTokens || f.PrimaryTokens < 0 ||
			f.SecondaryTokens < 0 || f.MatchedTokens > p.most() {
			w.failf("lookup of %s: %+v", p, f)
		}
	})
}

// most is how much of a prompt, or of an encoder input, may match.
func (p prompt) most() int {
	if len(p.Tokens) == 0 {
		return len(p.Encoder)
	}
	return len(p.Tokens) - 1
}

// maxPins bounds the pins, which would fill the pools otherwise.
const maxPins = 3

func (w *world) pin() {
	if len(w.pins) >= maxPins {
		w.unpin()
		return
	}
	p := w.drawPrefix()
	m := &messages.PinPrefix{Prefix: p.Prefix}
	r := &request{kind: "pin", record: m, detail: p.String()}
	r.then = func(err error) {
		if err != nil {
			return
		}
		w.expect(r, m.Err, messages.ErrOutOfPages)
		if m.Err == nil {
			w.tellf("  pin %d of %d tokens", m.Pinned.Pin, m.Pinned.Tokens)
			w.pins = append(w.pins, m.Pinned.Pin)
		}
	}
	w.submit(r)
}

func (w *world) unpin() {
	if len(w.pins) == 0 {
		return
	}
	i := w.rng.IntN(len(w.pins))
	pin := w.pins[i]
	w.pins = append(w.pins[:i:i], w.pins[i+1:]...)
	m := &messages.UnpinPrefix{Pin: pin}
	r := &request{kind: "unpin", record: m, detail: fmt.Sprint(pin)}
	r.then = func(err error) {
		if err != nil {
			w.pins = append(w.pins, pin)
			return
		}
		w.expect(r, m.Err, pinRefusals(w)...)
	}
	w.submit(r)
}

// pinRefusals are those that an unpin may get: pins end with what is stored.
func pinRefusals(w *world) []messages.Code {
	if w.treeLost {
		return []messages.Code{messages.ErrUnknownPin}
	}
	return nil
}

func (w *world) prefetch() {
	p := w.drawPrefix()
	m := &messages.Prefetch{Prefix: p.Prefix}
	w.ask("prefetch", m, p.String(), func(r *request) {
		if code(m.Err) == messages.ErrInternal && !w.calm {
			w.counts.add("refusals, internal", 1)
			return // a transfer failed
		}
		w.expect(r, m.Err, messages.ErrOutOfPages)
		w.counts.add("pages prefetched", m.OnboardedPages)
	})
}

func (w *world) invalidate() {
	m := &messages.Invalidate{}
	var detail string
	switch w.rng.IntN(3) {
	case 0:
		m.Selector.Session = "s"
		detail = "session s"
	case 1:
		m.Selector.Salt = "a"
		detail = "salt a"
	default:
		p := w.drawPrefix()
		m.Selector.Prefix = &p.Prefix
		detail = p.String()
	}
	w.ask("invalidate", m, detail, func(r *request) {
		w.expect(r, m.Err)
		w.counts.add("blocks invalidated", m.Blocks)
	})
}

func (w *world) reset() {
	m := &messages.Reset{}
	w.ask("reset", m, "", func(r *request) { w.expect(r, m.Err) })
}

// readEvents makes the mirror follow. Only one reader may be on its way, or
// batches could overtake one another.
func (w *world) readEvents() {
	for _, r := range w.flying {
		if r.kind == "events" || r.kind == "snapshot" {
			return
		}
	}
	if w.mirror.Stale() {
		m := &kvevents.ReadSnapshot{}
		r := &request{kind: "snapshot", record: m}
		r.then = func(err error) {
			if err == nil {
				w.follow(m.Batch)
			}
		}
		w.submit(r)
		return
	}
	m := &kvevents.ReadEvents{}
	r := &request{kind: "events", record: m}
	r.then = func(err error) {
		if err == nil {
			w.follow(m.Batch)
		}
	}
	w.submit(r)
}

// follow makes the mirror follow a batch; events may be lost if few are kept.
func (w *world) follow(b kvevents.EventBatch) {
	w.counts.add("events", len(b.Events))
	if w.tell {
		for i := range b.Events {
			w.tellf("  event %s", events.Draw(&b.Events[i]))
		}
	}
	if w.mirror.Stale() && !b.Snapshot {
		return
	}
	err := w.mirror.Follow(b)
	if errors.Is(err, events.ErrStale) && (w.injected > 0 ||
		b.Lost > 0 && w.cache.EventBufferMaxSize < 1<<18) {
		w.counts.add("events lost", int(b.Lost))
		return
	}
	w.fail(err)
}

// readStats looks at the counts of pages.
func (w *world) readStats() {
	m := &inspect.ReadStats{}
	r := &request{kind: "stats", record: m}
	r.then = func(err error) {
		if err == nil {
			w.checkStats(&m.Stats)
		}
	}
	w.submit(r)
}

func (w *world) checkStats(s *inspect.Stats) {
	for p := range s.Pools {
		if w.resizing { // a pool that was to shrink may have, no other has changed
			w.totals[p].Total = min(w.totals[p].Total, s.Pools[p].Primary.Total)
		}
		for tier, n := range []inspect.TierPages{s.Pools[p].Primary, s.Pools[p].Secondary} {
			total := w.pages[p].Secondary
			if tier == int(messages.Primary) {
				total = w.totals[p].Total
			}
			if n.Used+n.Cached+n.Free != n.Total || n.Total != total || n.Used < 0 || n.Cached < 0 ||
				n.Free < 0 {
				w.failf("pool %s, %v: %+v of %d pages", s.Pools[p].Name, messages.Tier(tier), n, total)
			}
		}
	}
	if int(s.Restarts) > w.injected {
		w.failf("%d restarts for %d panics asked for", s.Restarts, w.injected)
	}
	w.resizing = false
}
