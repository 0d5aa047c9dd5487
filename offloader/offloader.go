package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// DefaultSliceBytes bounds one submission, so that an urgent one never queues
// behind more than 0.3 ms of a 52 GB/s link.
const DefaultSliceBytes = 16 << 20

// Config sizes an offloader.
type Config struct {
	Pools []PoolConfig // by messages.PoolID
	// MinPriority is the least priority that goes on in host memory.
	MinPriority messages.Priority
	// Quotas are the tenants' shares of the host pages of each pool; nil: none.
	Quotas []windows.Quota
	// SliceBytes bounds one submission, a single page excepted; 0 means
	// DefaultSliceBytes.
	SliceBytes int64
	// Passed tells whether a ticket is known to have passed, so that nothing waits for
	// it. Without Passed no ticket is.
	Passed func(messages.Ticket) bool
	// TakeSavePage, if it is not nil, makes the offloader save what it displaces, of
	// priority MinSavePriority or more. It gives a save page that is not in use, NoPage
	// if there is none; one that was given is in use until the caller has read it.
	TakeSavePage    func(messages.PoolID) messages.PageID
	MinSavePriority messages.Priority
	// SkipWait names one of WaitNames to leave out, so that tests can show that the hazard
	// checker reports it. Empty except in tests.
	SkipWait string
}

// PoolConfig is the geometry of one pool's pages.
type PoolConfig struct {
	Name      string
	HostPages int
	// Policy is that of the device pool, see evict.Options.
	Policy string
	// SparePages are host pages beyond HostPages for copies ahead of demand when host
	// memory is full. No decision and no count includes them.
	SparePages     int
	PageBytes      int64
	TokensPerBlock int
	// Regions say which bytes of a page belong to which token, for copies of leading tokens:
	// windows.Pool.Regions. Without them, as in a pool of states, pages are copied whole.
	Regions []windows.Region
}

// Offloader is the state of host memory and the order of all transfers.
//
// A Move goes through it as Begin, then Next and Submitted until Next answers
// nil, then Finish. No method may be called concurrently with another.
type Offloader struct {
	cfg    Config
	hosts  []hostPool     // by PoolID
	ledger ledger         // who touched which page, by ticket
	phase  phase          // what may be called
	move   *protocol.Move // the current one; nil for PlanAhead
	// It tells the records of this work from others, see record.failed.
	number uint64 // of the current work

	items   []item // the plan, in the order of submission
	cursor  int    // first item that is not submitted
	saves   []Save // of the current work
	evicted []Displaced
	// guarded lists the host pages that the Move reads, each as often as it has a pin for that.
	guarded   []Slot
	hostPages []messages.PageID // destinations of copies ahead, while planning

	// Items before cursor are submitted, those in batch are in sub, and the next batch begins at
	// resume.
	batch   []int32 // items in sub
	owners  []int32 // of each copy in sub, the place in batch of its item, or of the first of its run
	batchNo uint64  // of sub, for overlaps
	resume  int     // cursor when sub is queued whole
	sub     Submission
}

// phase is where the calls of one Move stand.
type phase uint8

const (
	idle      phase = iota // Begin or PlanAhead comes next
	planned                // Next or Finish
	submitted              // Submitted
)

var phaseNames = [...]string{"idle", "planned", "submitted"}

// New makes an offloader with empty host memory.
func New(cfg Config) *Offloader {
	if cfg.SliceBytes <= 0 {
		cfg.SliceBytes = DefaultSliceBytes
	}
	o := &Offloader{
		cfg:    cfg,
		hosts:  make([]hostPool, len(cfg.Pools)),
		ledger: newLedger(cfg.Passed),
	}
	for i, p := range cfg.Pools {
		o.hosts[i].init(p, cfg.Quotas)
	}
	return o
}

// Begin starts a Move and makes all of its decisions: which victims go on in host
// memory, what they displace there, what is copied and in which order. The Move belongs
// to the offloader until Finish. For its cost see the package.
//
// The order of the steps is part of the result. Effects free pages, pins and guards protect
// pages, and both must precede the decisions, which displace what is free of both. The
// transfers are planned when all decisions are made, offloads first: the device page of a
// victim may be the destination of an onboard of the same Move. Marks come last, and the
// waits of copies are collected in Next, so the copies wait for the kernels that are marked.
func (o *Offloader) Begin(m *protocol.Move) {
	o.expect(idle, "Begin")
	o.start(m)
	for i := range m.Effects {
		o.apply(&m.Effects[i])
	}
	for i := range m.Pools {
		o.pin(messages.PoolID(i), &m.Pools[i])
		o.guardReads(messages.PoolID(i), &m.Pools[i])
	}
	for i := range m.Pools {
		o.decide(messages.PoolID(i), &m.Pools[i])
	}
	o.plan()
	for i := range m.Marks {
		o.mark(&m.Marks[i])
	}
	o.mustCheck()
}

// Finish ends the work that Begin or PlanAhead has started and fills in the results of
// the Move. It panics if copies have not been submitted.
func (o *Offloader) Finish() {
	o.expect(planned, "Finish")
	if o.cursor < len(o.items) {
		panic(fmt.Sprintf("offloader: Finish with %d of %d transfers not submitted",
			len(o.items)-o.cursor, len(o.items)))
	}
	// Failures are undone in the order of the items, before onboards are finished: these
	// look at Failed.
	for i := range o.items {
		if o.items[i].failed {
			o.fail(&o.items[i])
		}
	}
	// Protection ends before finishOnboards, so that makeClean can queue the pages.
	o.unguard()
	if m := o.move; m != nil {
		for i := range m.Pools {
			o.finishOnboards(messages.PoolID(i), m.Pools[i].Onboards)
		}
		// All copies of the Move are in the ledger by now, so the answers include them.
		for i := range m.Queries {
			o.answer(&m.Queries[i])
		}
		m.Counts = m.Counts[:0]
		for i := range o.hosts {
			m.Counts = append(m.Counts, o.hosts[i].count())
		}
	}
	o.move, o.phase = nil, idle
	o.mustCheck()
}

// Counts counts the pages of a pool's host memory. Sole pages with pins are used, other
// sole pages and clean copies are cached, and ahead copies count as free.
func (o *Offloader) Counts(pool messages.PoolID) inspect.TierPages { return o.hosts[pool].count() }

// start begins one piece of work: a Move or the copies of one PlanAhead.
//
// The slices keep their memory, so a Move allocates nothing once they have grown.
func (o *Offloader) start(m *protocol.Move) {
	o.move, o.phase = m, planned
	o.number++
	o.ledger.begin()
	o.items, o.cursor = o.items[:0], 0
	o.guarded = o.guarded[:0]
	o.saves, o.evicted = nil, o.evicted[:0]
}

// expect panics if the calls of one piece of work are out of order.
func (o *Offloader) expect(want phase, call string) {
	if o.phase != want {
		panic(fmt.Sprintf("offloader: %s while %s, which wants %s",
			call, phaseNames[o.phase], phaseNames[want]))
	}
}

// mustCheck runs Check in builds with the tag invariants.
func (o *Offloader) mustCheck() {
	if !invariants.Enabled {
		return
	}
	if err := o.Check(); err != nil {
		panic(fmt.Sprintf("offloader: %v\n%s", err, o))
	}
}

// Rebuild makes this offloader, a new one, what the tree, sequences and pins know of host memory.
// The failed one is asked for the uses of contents, whose owners do not keep them: a wrong use
// changes the order of eviction and nothing else.
func (o *Offloader) Rebuild(failed *Offloader, m *protocol.RebuildHost) {
	m.Counts = m.Counts[:0]
	for p := range m.Kept {
		id := messages.PoolID(p)
		for i := range m.Kept[p] {
			k := &m.Kept[p][i]
			k.Use = failed.useOf(id, k.Block)
		}
		o.adopt(id, m.Kept[p])
		m.Counts = append(m.Counts, o.Counts(id))
	}
}

// adopt restores the sole pages of a pool in a new offloader that replaces a failed
// one. Nothing else is known about clean and ahead copies, so they are lost and their
// pages are free. So is the ledger: all transfers must have passed before.
func (o *Offloader) adopt(pool messages.PoolID, kept []protocol.KeptPage) {
	o.expect(idle, "Rebuild")
	h := &o.hosts[pool]
	for i := range kept {
		k := &kept[i]
		// Two owners of one page, or two pages of one block, contradict each other.
		if h.pages[k.Page].state != free || h.find(k.Block) != messages.NoPage {
			panic(fmt.Sprintf(
				"offloader: pool %s: adoption of block %d on host page %d, which is %s; "+
					"the block is on page %d",
				h.name, k.Block, k.Page, h.stateOf(k.Page), h.find(k.Block)))
		}
		h.pages[k.Page].pins = k.Pins
		h.hold(k.Page, k.Block, k.Tenant, evict.Contents{Use: k.Use, Depth: k.Depth,
			Priority: k.Priority, Useless: k.Useless}, nil)
	}
	// The ring was full of pages that have contents now, so it is made again from the states.
	h.head, h.size = 0, 0
	for i := range h.pages {
		if h.pages[i].state == free {
			h.idle[h.size] = messages.PageID(i)
			h.size++
		}
	}
	o.mustCheck()
}

// useOf is the latest use of the host contents of a block; 0 if there are none.
func (o *Offloader) useOf(pool messages.PoolID, b protocol.BlockID) protocol.Use {
	h := &o.hosts[pool]
	if p := h.findSole(b); p != messages.NoPage {
		return h.order.Page(int32(p)).Use
	}
	return 0
}
