package oracle_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

func (r *run) lookup(t *rapid.T) {
	q := r.drawKnown(t)
	a, ea := r.a.Lookup(r.ctx, q)
	b, eb := r.b.Lookup(r.ctx, q)
	r.same(t, "lookup", ea, eb, a, b)
}

func (r *run) pin(t *rapid.T) {
	if len(r.pins) > 2 {
		r.pass(t, "enough pins")
	}
	q := r.drawKnown(t)
	a, ea := r.a.Pin(r.ctx, q)
	b, eb := r.b.Pin(r.ctx, q)
	r.same(t, "pin", ea, eb, a.Tokens, b.Tokens)
	if ea == nil {
		r.pins = append(r.pins, [2]messages.PinID{a.Pin, b.Pin})
	}
}

func (r *run) unpin(t *rapid.T) {
	if len(r.pins) == 0 {
		r.pass(t, "no pin")
	}
	i := rapid.IntRange(0, len(r.pins)-1).Draw(t, "pin")
	ea, eb := r.a.Unpin(r.ctx, r.pins[i][0]), r.b.Unpin(r.ctx, r.pins[i][1])
	r.same(t, "unpin", ea, eb, nil, nil)
	r.pins = slices.Delete(r.pins, i, i+1)
}

func (r *run) prefetch(t *rapid.T) {
	q := r.drawKnown(t)
	a, ea := r.a.Prefetch(r.ctx, q)
	b, eb := r.b.Prefetch(r.ctx, q)
	r.same(t, "prefetch", ea, eb, a, b)
}

func (r *run) invalidate(t *rapid.T) {
	var sel messages.Selector
	switch rapid.IntRange(0, 4).Draw(t, "selector") {
	case 4:
		ns := r.drawNamespace(t)
		sel.LoRA, sel.HasLoRA = ns.LoRA, true
		if rapid.Bool().Draw(t, "of one salt") {
			sel.Salt = "s"
		}
	case 0:
		sel.Session = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "session")
	case 1:
		sel.Salt = "s"
	default:
		q := r.drawKnown(t)
		sel.Prefix = &q
	}
	a, ea := r.a.Invalidate(r.ctx, sel)
	b, eb := r.b.Invalidate(r.ctx, sel)
	r.same(t, "invalidate", ea, eb, a, b)
}

func (r *run) reset(t *rapid.T) {
	if mostly(t, "not now") {
		r.pass(t, "a reset makes everything easy")
	}
	switch rapid.IntRange(0, 3).Draw(t, "reset") {
	case 0:
		r.same(t, "reset of what runs", r.a.ResetRunning(r.ctx), r.b.ResetRunning(r.ctx), nil, nil)
	case 1:
		epoch := rapid.SampledFrom([]string{"", "v1", "v2"}).Draw(t, "epoch")
		r.same(t, "weights", r.a.SetWeights(r.ctx, epoch), r.b.SetWeights(r.ctx, epoch), nil, nil)
	default:
		r.same(t, "reset", r.a.Reset(r.ctx), r.b.Reset(r.ctx), nil, nil)
	}
}

func (r *run) advance(t *rapid.T) {
	r.now += time.Duration(rapid.IntRange(1, 5).Draw(t, "ms")) * time.Millisecond
}

// snapshot compares the keys of both, with each other and with the mirrors that
// followed the events until now.
func (r *run) snapshot(t *rapid.T) {
	r.compareEvents(t)
	a, ea := r.a.Snapshot(r.ctx)
	b, eb := r.b.Snapshot(r.ctx)
	r.same(t, "snapshot", ea, eb, a.Lost, b.Lost)
	for side, batch := range []kvevents.EventBatch{a, b} {
		fresh := newMirror(r.config)
		for _, e := range batch.Events {
			if e.Type != kvevents.EventStored {
				t.Fatalf("a snapshot holds an event %v", e)
			}
			fresh.follow(e)
		}
		if d := fresh.differ(r.mirrors[side]); d != "" {
			t.Fatalf("implementation %d: the mirror that followed the events and the snapshot differ: %s",
				side, d)
		}
	}
	if d := r.mirrors[0].renamed(r.hashes).differ(r.mirrors[1]); d != "" {
		t.Fatalf("the keys differ: %s", d)
	}
}
