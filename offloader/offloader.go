package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
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
	// Ahead permits PlanAhead.
	Ahead bool
	// SliceBytes bounds one submission, a single page excepted; 0 means
	// DefaultSliceBytes.
	SliceBytes int64
	// Passed tells whether a ticket is known to be done. It spares waits; nil
	// never assumes so.
	Passed func(messages.Ticket) bool
	// SkipWait names one wait to leave out, so that tests can prove that the
	// hazard checker misses it. Empty in any real engine.
	SkipWait string
}

// PoolConfig is the geometry of one pool's pages.
type PoolConfig struct {
	Name        string
	DevicePages int
	HostPages   int
	// SparePages are host pages beyond HostPages. No decision and no count knows
	// them: they let copies be made ahead of demand when host memory is full.
	SparePages     int
	PageBytes      int64
	Layers         int
	KVHeads        int
	HeadDim        int
	ElemBytes      int
	TokensPerBlock int
	// Regions say which bytes of a page belong to which token, for copies of
	// leading tokens. nil: keys and values of equal size, by the fields above.
	Regions []windows.Region
}

// Offloader is the state of host memory and the order of all transfers.
//
// A Move goes through it as Begin, then Next and Submitted until Next answers
// nil, then Finish. No method may be called concurrently with another.
type Offloader struct {
	cfg    Config
	hosts  []hostPool     // by PoolID
	shapes []shape        // by PoolID
	ledger ledger         // who touched which page, by ticket
	skip   waitKind       // waitKinds: none
	phase  phase          // what may be called
	move   *protocol.Move // the one under way; nil ahead of demand
	stamp  uint64         // of the work under way
	number uint32         // of the work under way, for spoiled pages

	items    []item // the plan, in the order of submission
	cursor   int    // first item that is not submitted
	deferred []item // host-to-device copies, while planning
	guarded  []guard
	spots    []messages.PageID // for copies ahead, while planning

	batch   []int32 // items in sub
	first   []int32 // of each, its first copy in sub
	batchNo uint32  // of sub, for overlaps
	resume  int     // cursor when sub is queued whole
	sub     Submission
	streams [lanes]messages.StreamID // learned from tickets; 0: not yet
}

// phase is where the calls of one Move stand.
type phase uint8

const (
	idle      phase = iota // Begin or PlanAhead comes next
	planned                // Next or Finish
	submitted              // Submitted
)

var phaseNames = [...]string{"idle", "planned", "submitted"}

// guard is a host page that the Move reads and that is no victim meanwhile.
type guard struct {
	pool messages.PoolID
	page messages.PageID
}

// New makes an offloader with empty host memory. It panics on a geometry that
// contradicts itself: sizes are computed, never typed in by a user.
func New(cfg Config) *Offloader {
	if cfg.SliceBytes <= 0 {
		cfg.SliceBytes = DefaultSliceBytes
	}
	o := &Offloader{
		cfg:    cfg,
		hosts:  make([]hostPool, len(cfg.Pools)),
		shapes: make([]shape, len(cfg.Pools)),
		skip:   waitNamed(cfg.SkipWait),
	}
	o.ledger.init(cfg.Pools, cfg.Passed)
	for i, p := range cfg.Pools {
		o.hosts[i].init(p, cfg.Quotas)
		o.shapes[i] = newShape(p)
	}
	return o
}

// Begin takes a Move in and decides everything: what goes on in host memory,
// what is displaced there, what is copied in which order. The Move belongs to
// the offloader until Finish. Cost: O(log host pages) a victim.
func (o *Offloader) Begin(m *protocol.Move) {
	o.enter(idle, "Begin")
	o.open(m, m.Stamp)
	for i := range m.Effects {
		o.apply(&m.Effects[i])
	}
	for i := range m.Pools {
		o.pin(messages.PoolID(i), &m.Pools[i])
	}
	for i := range m.Pools {
		o.guardReads(messages.PoolID(i), &m.Pools[i])
	}
	for i := range m.Pools {
		o.decide(messages.PoolID(i), &m.Pools[i])
	}
	o.plan()
	for i := range m.Marks {
		o.mark(&m.Marks[i])
	}
	o.checked()
}

// Finish ends the work that Begin or PlanAhead started and fills in the
// Move's answers. Copies that were never submitted are a bug.
func (o *Offloader) Finish() {
	o.enter(planned, "Finish")
	if o.cursor < len(o.items) {
		panic(fmt.Sprintf("offloader: Finish with %d of %d transfers not submitted", len(o.items)-o.cursor, len(o.items)))
	}
	for i := range o.items {
		if o.items[i].failed {
			o.fail(&o.items[i])
		}
	}
	o.unguard()
	if m := o.move; m != nil {
		for i := range m.Pools {
			o.arrive(messages.PoolID(i), m.Pools[i].Onboards)
		}
		for i := range m.Queries {
			o.ready(&m.Queries[i])
		}
		m.Counts = m.Counts[:0]
		for i := range o.hosts {
			m.Counts = append(m.Counts, o.hosts[i].tally())
		}
	}
	o.move, o.phase = nil, idle
	o.checked()
}

// Counts gives the pages of a pool's host memory: used are those that a pin
// holds as the only contents of a block, cached the other contents and the
// clean copies; copies ahead of demand count as free.
func (o *Offloader) Counts(pool messages.PoolID) messages.PageCounts { return o.hosts[pool].tally() }

// Sole gives the host page that is the only contents of a block, or NoPage:
// the tree must say the same of it.
func (o *Offloader) Sole(pool messages.PoolID, b protocol.BlockID) messages.PageID {
	p := o.hosts[pool].find(b)
	if p == messages.NoPage || o.hosts[pool].pages[p].state != sole {
		return messages.NoPage
	}
	return p
}

// SetDevicePages follows a rebalance. Nothing may be under way on pages that go.
func (o *Offloader) SetDevicePages(pool messages.PoolID, pages int) {
	o.enter(idle, "SetDevicePages")
	o.cfg.Pools[pool].DevicePages = pages
	o.ledger.grow(pool, messages.Primary, pages)
}

// open starts one piece of work.
func (o *Offloader) open(m *protocol.Move, stamp uint64) {
	o.move, o.stamp, o.phase = m, stamp, planned
	o.number++
	o.ledger.work = o.number
	o.items, o.cursor = o.items[:0], 0
	o.guarded = o.guarded[:0]
}

// enter holds the callers to the order of calls.
func (o *Offloader) enter(want phase, call string) {
	if o.phase != want {
		panic(fmt.Sprintf("offloader: %s while %s, which wants %s", call, phaseNames[o.phase], phaseNames[want]))
	}
}

// checked runs Check under the build tag invariants.
func (o *Offloader) checked() {
	if !invariants {
		return
	}
	if err := o.Check(); err != nil {
		panic(fmt.Sprintf("offloader: %v\n%s", err, o))
	}
}
