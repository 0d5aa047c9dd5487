package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Draft is a batch of events on its way to a reader. It has a copy of all it needs
// of the log but for the tokens and hashes of runs, which it refers to and which do
// not change until it is back. So Name, which may have to hash a million blocks,
// runs on any goroutine, while the log goes on.
//
//	log goroutine      Take ──▶ draft                Named ◀── draft
//	any goroutine                └──▶ Name ──▶ batch ──────────┘
type Draft struct {
	log    *Log
	of     int                 // generation of the log's runs
	batch  kvevents.EventBatch // events without blocks and hashes
	spans  []int               // how many of pieces each event has
	pieces []piece
	runs   []draftRun
}

// piece is the blocks [from, from+count) of one run of a draft.
type piece struct {
	run         int
	from, count int
	tier        messages.Tier
	priority    messages.Priority
	backwards   bool
}

// draftRun is a run as a draft sees it. Those that its hashes depend on come before.
type draftRun struct {
	run
	number int32 // in the log
	// above is less than the index of this run, so one loop over runs can hash them
	// all.
	above int // index in the draft of the run before, if there are no hashes yet
}

// draft makes an empty draft for a reader, with room for n events.
func (l *Log) draft(r *reader, n int) *Draft {
	return &Draft{
		log: l, of: l.generation, batch: kvevents.EventBatch{Engine: l.engine, Events: make([]kvevents.Event, 0, n), Lost: l.missed(r)},
	}
}

// event adds an event with the pieces that are added after it.
func (d *Draft) event(e *kept, id uint64) {
	out := kvevents.Event{ID: id, Pool: e.pool}
	switch {
	case e.created:
		out.Type, out.PrimaryPages, out.SecondaryPages = kvevents.EventCreated, e.pages.Primary, e.pages.Secondary
	case e.kind == protocol.BlocksStored:
		out.Type = kvevents.EventStored
	case e.kind == protocol.BlocksRemoved:
		out.Type = kvevents.EventRemoved
	case e.kind == protocol.TierChanged:
		out.Type, out.TierChanged = kvevents.EventUpdated, true
		// There are two tiers, so the old one is the other.
		out.OldTier, out.NewTier = messages.Secondary-e.tier, e.tier
	case e.kind == protocol.PriorityChanged:
		out.Type, out.OldPriority, out.NewPriority = kvevents.EventUpdated, e.oldPriority, e.priority
	case e.kind == protocol.EverythingForgot:
		out.Type = kvevents.EventCleared
	}
	d.batch.Events = append(d.batch.Events, out)
	d.spans = append(d.spans, 0)
}

// span adds the blocks of a span to the last event, in the order of telling. The span
// is followed backwards from its last block, through as many runs as it has blocks
// in, since a run knows only the run before. The pieces are then turned round, unless
// the event tells its blocks backwards.
func (d *Draft) span(l *Log, s span) {
	first := len(d.pieces)
	for n := s.count; n > 0; {
		k := min(n, s.index+1)
		p := piece{from: int(s.index + 1 - k), count: int(k), tier: s.tier, priority: s.priority, backwards: s.backwards}
		p.run = d.use(l, s.run)
		d.pieces = append(d.pieces, p)
		r := &l.runs.list[s.run]
		// The position in the run before is that of the block which the first block
		// of this run follows.
		s.position, n = position{r.parent, r.parentIndex}, n-k
	}
	if !s.backwards {
		slices.Reverse(d.pieces[first:])
	}
	d.spans[len(d.spans)-1] += len(d.pieces) - first
}

// keys adds what the pools of a tree hold as stored events.
func (d *Draft) keys(l *Log, c *protocol.Changes) {
	for i := range c.List {
		change := &c.List[i]
		if change.Kind != protocol.BlocksStored {
			continue
		}
		if !change.Joined {
			d.event(&kept{kind: change.Kind, pool: change.Pool}, 0)
		}
		d.span(l, span{position: l.blocks[change.Last], count: change.Count, tier: change.Tier, priority: change.Priority})
	}
}

// use returns the index of a run in the draft, and adds it and the runs that its
// hashes depend on if they are not there yet.
func (d *Draft) use(l *Log, n int32) int {
	first := len(d.runs)
	for x := n; !d.has(l, x); {
		r := &l.runs.list[x]
		// The ref keeps the run until Named, whatever the tree and the kept events do
		// in the meantime. The run itself is copied, as list may move when it grows.
		r.refs++
		r.drafts++
		d.runs = append(d.runs, draftRun{run: *r, number: x})
		// A run with hashes has its before as well, so the runs above it are not
		// needed.
		if r.parent == none || r.named().hashes != nil {
			break
		}
		x = r.parent
	}
	// They were found from the last to the first; hashes are made from the first on.
	slices.Reverse(d.runs[first:])
	for i := first; i < len(d.runs); i++ {
		r := &d.runs[i]
		l.runs.list[r.number].draft = int32(i)
		if r.parent != none && r.named().hashes == nil {
			r.above = int(l.runs.list[r.parent].draft)
		}
	}
	return int(l.runs.list[n].draft)
}

// has tells whether a run of the log is in the draft, at the index that the run says. The
// index may be that of another draft; then another run is there, or none.
func (d *Draft) has(l *Log, n int32) bool {
	i := int(l.runs.list[n].draft)
	return i < len(d.runs) && d.runs[i].number == n
}

// Named takes a draft back, whether it was named or not. The log remembers the
// hashes that were made for it, so that no block is hashed again. A draft of a log
// that has failed since is nothing to the log that goes on, nor is one of runs that the
// log has forgotten.
func (l *Log) Named(d *Draft) {
	if d.log != l || d.of != l.generation {
		return
	}
	for i := range d.runs {
		made := &d.runs[i]
		r := &l.runs.list[made.number]
		// Two drafts that were out together may both have hashed a run. Their hashes
		// are equal; the first ones stay, since another draft may refer to them.
		if made.named().hashes != nil && r.named().hashes == nil {
			r.names = made.names
		}
		r.drafts--
		l.runs.unref(made.number)
	}
	d.log, d.runs = nil, nil
	l.verify()
}

// Name hashes the blocks of a draft that have no hashes yet, at some 0.12 µs for 16
// tokens, and returns the batch, which is the reader's.
func (d *Draft) Name() kvevents.EventBatch {
	var h hasher
	// Runs come behind those that their hashes depend on.
	for i := range d.runs {
		if r := &d.runs[i]; r.named().hashes == nil {
			if r.parent != none {
				r.hash(&h, d.runs[r.above].names.hashes[r.parentIndex])
			} else {
				r.hash(&h, h.seed(&r.named().namespace))
			}
		}
	}
	pieces := d.pieces
	for i := range d.batch.Events {
		d.complete(&d.batch.Events[i], pieces[:d.spans[i]])
		pieces = pieces[d.spans[i]:]
	}
	return d.batch
}

// hash hashes the blocks of a run behind a block with the hash before. The run gets
// other names and those it has stay as they are: the log's run has them too.
func (r *run) hash(h *hasher, before kvevents.Hash) {
	n, size := *r.named(), r.size()
	n.before, n.hashes = before, make([]kvevents.Hash, r.count)
	for i := range n.hashes {
		from, to := i*size, (i+1)*size
		var covers []messages.Cover
		if n.covers != nil {
			covers = n.covers[from:to]
		}
		before = h.block(before, r.tokens[from:to], covers)
		n.hashes[i] = before
	}
	r.names = &n
}

// complete gives an event its blocks.
func (d *Draft) complete(e *kvevents.Event, pieces []piece) {
	switch e.Type {
	case kvevents.EventStored:
		d.stored(e, pieces)
	case kvevents.EventRemoved:
		d.removed(e, pieces)
	case kvevents.EventUpdated:
		e.Hash = d.runs[pieces[0].run].names.hashes[pieces[0].from]
	case kvevents.EventCreated, kvevents.EventCleared:
	default:
		panic(fmt.Sprintf("events: a draft of an event of type %q", e.Type))
	}
}

// stored gives a stored event its blocks; those of a piece share the memory of
// their tokens.
func (d *Draft) stored(e *kvevents.Event, pieces []piece) {
	blocks := 0
	for i := range pieces {
		blocks += pieces[i].count
	}
	e.Blocks = make([]kvevents.StoredBlock, 0, blocks)
	for _, p := range pieces {
		r := &d.runs[p.run]
		size := r.size()
		end := p.from + p.count
		last := min(end*size, len(r.tokens)-int(r.padding))
		// The reader gets tokens of its own, which it may change. Padding is left out here;
		// it is part of the hash.
		tokens := slices.Clone(r.tokens[p.from*size : last])
		for i := range p.count {
			from, to := i*size, min((i+1)*size, len(tokens))
			// The capacity ends with the block, so a reader that appends does not
			// write to the next block.
			e.Blocks = append(e.Blocks, kvevents.StoredBlock{
				Hash: r.names.hashes[p.from+i], Tokens: tokens[from:to:to], Tier: p.tier, Priority: p.priority,
				Covers: r.coversOf(p.from+i, to-from),
			})
		}
	}
	// The parent is the block before the first one: in the same run, or the last that
	// the run was hashed from. A block that begins a prefix has none; its before is
	// the namespace.
	r, from := &d.runs[pieces[0].run], pieces[0].from
	switch {
	case from > 0:
		e.Parent, e.HasParent = r.names.hashes[from-1], true
	case r.parent != none:
		e.Parent, e.HasParent = r.names.before, true
	case r.names.namespace != (messages.Namespace{}):
		// A copy: the reader may write to it.
		namespace := r.names.namespace
		e.Namespace = &namespace
	}
}

// coversOf returns a copy of the covers of the first n tokens of a block; nil if no
// item covers any of them.
func (r *run) coversOf(block, n int) []messages.Cover {
	if r.names.covers == nil {
		return nil
	}
	covers := r.names.covers[block*r.size():][:n]
	if !slices.ContainsFunc(covers, func(c messages.Cover) bool { return c.Covered }) {
		return nil
	}
	return slices.Clone(covers)
}

// removed gives a removed event its hashes.
func (d *Draft) removed(e *kvevents.Event, pieces []piece) {
	for _, p := range pieces {
		hashes := d.runs[p.run].names.hashes[p.from : p.from+p.count]
		e.Hashes = append(e.Hashes, hashes...)
		if p.backwards {
			slices.Reverse(e.Hashes[len(e.Hashes)-len(hashes):])
		}
	}
}
