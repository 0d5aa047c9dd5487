package publish

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// Config is what a view is made from.
type Config struct {
	// Pools are all pools of the engine.
	Pools []windows.Pool
	// Naming says what blocks are called on the wire.
	Naming Naming
	// LoRAPaths are the paths of LoRA adapters by their names, which only SHA256CBOR
	// asks for. An adapter that is not there has its name for its path.
	LoRAPaths map[string]string
	// Only restricts the view to the blocks of one namespace that no multimodal item
	// covers, for readers that tell neither apart. nil publishes all.
	Only *messages.Namespace
}

// View holds the published blocks of an engine.
//
// Invariants: names has exactly the published blocks. A published block is held by all
// pools that count, is whole, has a published parent or begins a prompt, and is the end of a
// reuse or has a published child. A block
// that no pool holds is kept only while others follow it. Between calls of Follow no
// block is dirty.
// A View is single-threaded: calls of its methods must not overlap.
type View struct {
	// pools are those of attention and of states. The first counted of them count; the others,
	// in partial, hold what a reuse needs besides.
	pools   []messages.PoolID
	counted int
	partial []windows.Pool
	// reach is how many blocks before the end of a reuse partial pools look at.
	reach int
	size  int // tokens of a block
	only  *messages.Namespace
	namer namer

	// blocks are by the engine's hashes, which are long enough to be taken for unique:
	// the engine compares tokens, so two blocks of one hash would be stored as two.
	blocks map[kvevents.Hash]*block
	// root is the parent of all blocks that begin a prompt. It is published, so that
	// these need no case of their own.
	root       *block
	names      map[uint64]*block
	collisions int
	// dirty are the blocks whose state has changed in the current batch, in the order of
	// the events. Changes are told in this order, so equal events give equal bytes.
	dirty   []*block
	cleared bool               // by an event of the current batch
	sizes   []events.PoolPages // by index in pools
	resized bool               // by an event of the current batch

	// next and stale are changed by Follow alone. A stale view keeps its blocks, so that
	// readers have the last true state until the snapshot comes.
	next  uint64 // id that the next event must have
	stale bool
}

// New makes a view of an engine without blocks. It follows from the first event on,
// or from a snapshot.
func New(c Config) (*View, error) {
	counted := countedPools(c.Pools)
	if len(counted) == 0 {
		return nil, refusals.New(messages.ErrNotSupported,
			"none of %d pools has attention: there are no blocks of tokens to tell of", len(c.Pools))
	}
	n, err := c.namer()
	if err != nil {
		return nil, err
	}
	// All pools of an engine have the same blocks, so the first one's size is that of all.
	v := &View{
		size: counted[0].TokensPerBlock, only: c.Only, namer: n,
		blocks: map[kvevents.Hash]*block{}, names: map[uint64]*block{},
		root:  &block{known: true, published: true, ok: true, depth: -1, digest: n.root()},
		sizes: make([]events.PoolPages, len(counted)), counted: len(counted),
	}
	for _, p := range counted {
		v.pools = append(v.pools, p.ID)
	}
	for _, p := range c.Pools {
		if p.Kind != windows.KindCross && !slices.Contains(v.pools, p.ID) {
			v.pools, v.partial = append(v.pools, p.ID), append(v.partial, p)
			if p.Kind == windows.KindAttention {
				v.reach = max(v.reach, max(p.Window, p.Chunk)/v.size+1)
			}
		}
	}
	return v, nil
}

// countedPools returns the pools whose blocks a prompt needs from its start on: those
// with full attention. Without any, the pools with the largest window lose a block
// last, and what they hold from the start on is true, if not all that they hold.
func countedPools(pools []windows.Pool) []windows.Pool {
	var attention []windows.Pool
	for _, p := range pools {
		if p.Kind == windows.KindAttention {
			attention = append(attention, p)
		}
	}
	if len(attention) == 0 {
		return nil
	}
	// Full attention is larger than any window.
	reach := func(p windows.Pool) int {
		if p.Full() {
			return int(messages.MaxToken)
		}
		return max(p.Window, p.Chunk)
	}
	widest := slices.MaxFunc(attention,
		func(a, b windows.Pool) int { return cmp.Compare(reach(a), reach(b)) })
	return slices.DeleteFunc(attention, func(p windows.Pool) bool { return reach(p) != reach(widest) })
}

// Resize says how many pages a pool has, to a view that has not followed the engine
// from its first event on: snapshots do not tell.
func (v *View) Resize(pool messages.PoolID, pages events.PoolPages) {
	if i := slices.Index(v.pools[:v.counted], pool); i >= 0 {
		v.resized = v.resized || v.sizes[i] != pages
		v.sizes[i] = pages
	}
}

// Follow applies a batch of the engine's events and returns what has changed of the
// published blocks. The changes refer to memory of the view, which is not written to
// again. If events are missing it answers events.ErrStale and changes nothing until it
// follows a snapshot.
func (v *View) Follow(batch kvevents.EventBatch) ([]Change, error) {
	if batch.Snapshot {
		return v.restart(batch), nil
	}
	if batch.Lost > 0 {
		v.stale = true
	}
	for i := range batch.Events {
		// The first part of a batch is not applied without the rest: the snapshot
		// that follows has all of it.
		if batch.Events[i].ID != v.next+uint64(i) {
			v.stale = true
		}
	}
	if v.stale {
		return nil, events.ErrStale
	}
	v.next += uint64(len(batch.Events))
	for i := range batch.Events {
		v.apply(&batch.Events[i])
	}
	return v.reconcile(), nil
}

// restart replaces what the pools hold by a snapshot. Blocks stay known, so that the
// changes are the difference and not everything again.
// The cost is a sort of all known blocks. The order of their hashes stands for the order
// of the events, which the lost events would have had.
func (v *View) restart(batch kvevents.EventBatch) []Change {
	v.next, v.stale = batch.Next, false
	for _, b := range v.sorted() {
		for i := range b.held {
			b.held[i] = holding{}
		}
		v.touch(b)
	}
	for i := range batch.Events {
		v.apply(&batch.Events[i])
	}
	return v.reconcile()
}

// apply changes what the pools hold by one event; reconcile publishes it.
// An event of one pool says nothing of the others, so nothing is published here: a batch
// that stores a block in two pools would be told of twice.
func (v *View) apply(e *kvevents.Event) {
	if e.Type == kvevents.EventCleared {
		v.cleared = true
		return
	}
	// A linear search: hardly a model has more than two pools of full attention.
	pool := slices.Index(v.pools, e.Pool)
	if pool < 0 {
		return
	}
	switch e.Type {
	case kvevents.EventCreated:
		v.Resize(e.Pool, events.PoolPages{Primary: e.PrimaryPages, Secondary: e.SecondaryPages})
	case kvevents.EventStored:
		v.store(e, pool)
	case kvevents.EventRemoved:
		// A hash that is not known, or was never held, is a contradiction that
		// events.Mirror reports. A reader outside can do nothing about it.
		for _, h := range e.Hashes {
			if b := v.blocks[h]; b != nil {
				b.held[pool] = holding{}
				v.touch(b)
			}
		}
	case kvevents.EventUpdated:
		b := v.blocks[e.Hash]
		if b == nil {
			return
		}
		if e.TierChanged {
			b.held[pool].tier = e.NewTier
		} else {
			b.held[pool].priority = e.NewPriority
		}
		v.touch(b)
	}
}

// store notes that a pool holds consecutive blocks.
// The blocks of an event follow one another, so each is the parent of the next.
func (v *View) store(e *kvevents.Event, pool int) {
	parent := v.root
	if e.HasParent {
		// The parent may be unknown: the engine stores blocks behind one that all
		// pools have lost. It is known when it is stored.
		parent = v.block(e.Parent)
	}
	for i := range e.Blocks {
		s := &e.Blocks[i]
		b := v.block(s.Hash)
		// A block that is known already is stored in a further pool, or again. Its
		// hash says that nothing else about it can differ.
		if !b.known {
			b.known, b.tokens, b.covers = true, s.Tokens, s.Covers
			b.attach(parent)
			if parent == v.root && e.Namespace != nil {
				b.namespace = withoutWeights(*e.Namespace)
			}
		}
		b.held[pool] = holding{held: true, tier: s.Tier, priority: s.Priority}
		v.touch(b)
		parent = b
	}
}

// withoutWeights is a namespace as readers know it, nil for the zero one: they see one epoch of
// the weights at a time, since a new one removes all blocks of the one before.
func withoutWeights(ns messages.Namespace) *messages.Namespace {
	ns.Weights = ""
	if ns == (messages.Namespace{}) {
		return nil
	}
	return &ns
}

// Stale tells whether the view needs a snapshot.
func (v *View) Stale() bool { return v.stale }

// Len is the number of published blocks.
func (v *View) Len() int { return len(v.names) }

// Known is the number of blocks that the view knows, published or not.
func (v *View) Known() int { return len(v.blocks) }

// Collisions is how often a block was not published because another one had its name.
func (v *View) Collisions() int { return v.collisions }

// TokensPerBlock is the number of tokens of each published block.
func (v *View) TokensPerBlock() int { return v.size }

// Match is how many of the leading blocks of a prompt are published; the names are
// those of events.Names.
// A published block has a published parent, so the search ends at the first gap. Salts
// and adapters are in the names already.
func (v *View) Match(names []kvevents.Hash) int {
	for i, h := range names {
		if b := v.blocks[h]; b == nil || !b.published {
			return i
		}
	}
	return len(names)
}

// Tier says where a block is that is published.
func (v *View) Tier(name kvevents.Hash) (t messages.Tier, published bool) {
	b := v.blocks[name]
	if b == nil || !b.published {
		return 0, false
	}
	return b.tier, true
}

// All returns all published blocks as changes that store them, parents before
// children, for a reader that begins.
func (v *View) All() []Change {
	var out []Change
	// Depth first, so that a prompt's blocks follow each other and make one change.
	// The stack is a slice: a prompt of a million tokens would be as deep in calls.
	stack := v.root.appendChildren(nil)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !b.published {
			continue
		}
		out = appendStored(out, v.root, b)
		stack = b.appendChildren(stack)
	}
	return out
}

// sorted returns all known blocks by their hashes, so that no order depends on a map.
func (v *View) sorted() []*block {
	all := make([]*block, 0, len(v.blocks))
	for _, b := range v.blocks {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b *block) int { return slices.Compare(a.hash[:], b.hash[:]) })
	return all
}

// String draws the view in one line.
func (v *View) String() string {
	s := fmt.Sprintf("%d of %d blocks published, next event %d", len(v.names), len(v.blocks), v.next)
	if v.stale {
		s += ", stale"
	}
	return s
}
