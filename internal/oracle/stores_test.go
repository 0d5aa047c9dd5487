package oracle_test

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// StoreEngine is an engine with a store. In worlds with a store both engines are one.
type StoreEngine interface {
	Engine
	Fetch(context.Context, messages.Prefix) (blocks, localTokens int, err error)
	Flush(context.Context, messages.SequenceID) (saved int, err error)
	// LookupStored is a lookup that asks the store as well.
	LookupStored(context.Context, messages.Prefix) (messages.Found, error)
	// FailStore makes all calls of the store fail until it is called with false.
	FailStore(down bool)
}

// Model is an oracle as a StoreEngine.
type Model struct {
	Engine
	store *oracle.StoreTier
}

// NewModel opens an oracle.
func NewModel(c oracle.Config) Model {
	o := oracle.New(c)
	return Model{o, oracle.StoreOf(o)}
}

// Fetch fetches from the oracle's store.
func (m Model) Fetch(ctx context.Context, q messages.Prefix) (blocks, localTokens int, err error) {
	return m.store.Fetch(ctx, q)
}

// Flush counts what the oracle has saved.
func (m Model) Flush(ctx context.Context, id messages.SequenceID) (saved int, err error) {
	return m.store.Flush(ctx, id)
}

// LookupStored asks the oracle's store as well.
func (m Model) LookupStored(ctx context.Context, q messages.Prefix) (messages.Found, error) {
	return m.store.Lookup(ctx, q)
}

// FailStore makes the oracle's store fail.
func (m Model) FailStore(down bool) { m.store.FailStore(down) }

// drawStore gives a third of the worlds a store.
func drawStore(t *rapid.T, c *oracle.Config) {
	if rapid.IntRange(0, 2).Draw(t, "store") == 0 {
		c.Store = &oracle.StoreConfig{Store: oracle.NewStore()}
		for i := range c.Pools {
			c.Pools[i].Secondary = max(2, c.Pools[i].Secondary) // without host memory nothing is fetched
		}
		// Nor without reuse. A few worlds without are enough.
		c.BlockReuse = c.BlockReuse || rapid.Bool().Draw(t, "reuse with a store")
		c.OnboardBlocks = c.OnboardBlocks || rapid.Bool().Draw(t, "onboard with a store")
		drawSaves(t, c.Store)
	}
}

// drawSaves draws what an engine saves.
func drawSaves(t *rapid.T, c *oracle.StoreConfig) {
	c.Save = rapid.SampledFrom([]oracle.SavePolicy{oracle.SaveOnCommit, oracle.SaveOnCommit,
		oracle.SaveOnReuse, oracle.SaveHostEvict}).Draw(t, "save")
	c.MinPriority = rapid.SampledFrom([]messages.Priority{0, 0, 35, 50}).Draw(t, "save min")
}

// stores are both engines, with their stores. Without any the operation has nothing to do.
func (r *run) stores(t *rapid.T) (a, b StoreEngine) {
	if r.config.Store == nil {
		r.pass(t, "no store")
	}
	return r.a.(StoreEngine), r.b.(StoreEngine)
}

// fetch fetches a prefix.
func (r *run) fetch(t *rapid.T) {
	a, b := r.stores(t)
	q := r.drawLong(t)
	na, la, ea := a.Fetch(r.ctx, q)
	nb, lb, eb := b.Fetch(r.ctx, q)
	r.same(t, "fetch", ea, eb, [2]int{na, la}, [2]int{nb, lb})
}

// lookupStored looks a prefix up in the store as well.
func (r *run) lookupStored(t *rapid.T) {
	a, b := r.stores(t)
	q := r.drawLong(t)
	fa, ea := a.LookupStored(r.ctx, q)
	fb, eb := b.LookupStored(r.ctx, q)
	r.same(t, "lookup with the store", ea, eb, fa, fb)
}

// drawLong draws what was seen before and has a whole block, if anything has.
func (r *run) drawLong(t *rapid.T) messages.Prefix {
	long := slices.DeleteFunc(slices.Clone(r.seen),
		func(q messages.Prefix) bool { return len(q.Tokens) < r.config.TokensPerBlock })
	if len(long) == 0 || rapid.IntRange(0, 3).Draw(t, "any") == 3 {
		return r.drawKnown(t)
	}
	return rapid.SampledFrom(long).Draw(t, "long")
}

// refetch computes a prompt of some blocks, forgets what is stored, and fetches. By chance
// alone hardly any fetch of a run would bring anything.
func (r *run) refetch(t *rapid.T) {
	r.stores(t)
	if len(r.running) < mostRunning {
		q := messages.AdmitRequest{Namespace: r.drawNamespace(t),
			Tokens: drawTokens(t, r.config.TokensPerBlock, 4*r.config.TokensPerBlock)}
		before := len(r.running)
		r.admitOne(t, q)
		if len(r.running) > before && !r.running[before].prefilling() {
			r.releaseChosen(t, []*sequence{r.running[before]}, messages.ReleaseStep{})
		}
	}
	r.compareSaved(t) // the engine has written it then
	r.same(t, "reset", r.a.Reset(r.ctx), r.b.Reset(r.ctx), nil, nil)
	r.lookupStored(t)
	if r.down && rapid.Bool().Draw(t, "up") {
		r.outage(t)
	}
	r.fetch(t)
}

// flush names a sequence that runs, or one that does not.
func (r *run) flush(t *rapid.T) {
	a, b := r.stores(t)
	ids := [2]messages.SequenceID{1 << 40, 1 << 40}
	if n := len(r.running); n > 0 && mostly(t, "running") {
		ids = r.running[rapid.IntRange(0, n-1).Draw(t, "sequence")].id
	}
	na, ea := a.Flush(r.ctx, ids[0])
	nb, eb := b.Flush(r.ctx, ids[1])
	r.same(t, "flush", ea, eb, na, nb)
}

// outage makes the stores fail, or ends that.
func (r *run) outage(t *rapid.T) {
	a, b := r.stores(t)
	if !r.down && rapid.IntRange(0, 2).Draw(t, "not now") > 0 {
		r.pass(t, "a store that fails makes everything easy")
	}
	r.down = !r.down
	a.FailStore(r.down)
	b.FailStore(r.down)
}

// reopen closes both engines and opens others on the same store, which may have other pages
// and save something else.
func (r *run) reopen(t *rapid.T) {
	r.stores(t)
	if rapid.IntRange(0, 3).Draw(t, "not now") > 0 {
		r.pass(t, "an engine that is new has nothing to evict")
	}
	na, ea := r.a.Close(r.ctx)
	nb, eb := r.b.Close(r.ctx)
	r.same(t, "close", ea, eb, na, nb)
	own := *r.config.Store
	r.config.Store, r.config.Pools = &own, slices.Clone(r.config.Pools)
	drawSaves(t, &own)
	for i := range r.config.Pools {
		p := &r.config.Pools[i]
		p.Primary = rapid.IntRange(3, 12).Draw(t, "primary")
		p.Secondary = rapid.IntRange(1, 6).Draw(t, "secondary pages")
	}
	r.running, r.pins, r.gone, r.down = nil, nil, nil, false
	r.start()
}

// start opens both engines.
func (r *run) start() {
	r.hashes = newBijection[kvevents.Hash]()
	r.a, r.b = r.open(r.config)
	r.mirrors = [2]mirror{newMirror(r.config), newMirror(r.config)}
}

// compareSaved compares what both have saved since the last request. It comes after each
// request that saves, so that no answer depends on when the engine writes: an engine that
// saves more than its save pages hold, before the store has taken them, drops the rest.
func (r *run) compareSaved(t *rapid.T) {
	if r.config.Store == nil {
		return
	}
	na, ea := r.a.(StoreEngine).Flush(r.ctx, 0)
	nb, eb := r.b.(StoreEngine).Flush(r.ctx, 0)
	r.same(t, "objects saved", ea, eb, na, nb)
}

// fetchFirst makes some admissions fetch before they are served.
func (r *run) fetchFirst(t *rapid.T, q *messages.AdmitRequest) {
	if r.config.Store != nil && rapid.Bool().Draw(t, "fetch first") {
		q.Fetch = time.Hour
	}
}
