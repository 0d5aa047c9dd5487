package oracle

import (
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// PoolConfig is one pool: the layers that share window and KV heads, or the
// recurrent layers.
type PoolConfig struct {
	Name      string
	State     bool // pages hold recurrent states; Window and KVHeads are 0
	Window    int  // tokens; 0: full attention
	Sink      int  // leading tokens that never leave a limited window
	KVHeads   int
	Layers    []int
	PageBytes int64
	Primary   int // device pages
	Secondary int // host pages
}

// Config is what the model needs to know; there are no defaults.
type Config struct {
	TokensPerBlock              int
	MaxSeqLen                   int
	Pools                       []PoolConfig // ascending window, full attention, states
	SecondaryOffloadMinPriority int
	OnboardBlocks               bool
	BlockReuse                  bool
	PartialReuse                bool
	CopyOnPartialReuse          bool
	SaltQuotas                  map[string]float64   // shares of each tier of each pool, by salt
	OtherSaltsQuota             float64              // that of all other salts together; 0: none
	CheckpointInterval          int                  // tokens between checkpoints of states; 0: none
	Store                       *StoreConfig         // nil: none
	EventLimit                  int                  // events kept for the reader; 0: none
	Clock                       func() time.Duration // the only time there is
}

// Oracle is the model of one engine. It is not safe for concurrent use.
type Oracle struct {
	cfg  Config
	tpb  int
	pool []*pool // by PoolID

	blocks    []*block // what is stored: every block that some pool holds
	sequences []*sequence
	pins      []*pin

	request      uint64 // counts requests, for uses and the ages of clean copies
	now          time.Duration
	touches      uint64 // counts stores and claims, for ties between sources
	timers       uint64 // counts timers started
	ends         uint64 // counts references that ended, for ties between victims
	copies       uint64 // counts clean copies, for ties between them
	lastSequence messages.SequenceID
	lastPin      messages.PinID
	closed       bool

	requests, promptTokens, reusedTokens int64

	storeTier *StoreTier
	events    []kvevents.Event
	nextEvent uint64
	lost      uint64

	// guarded is only set while a request is under way: device and host pages
	// that it reads from, so no one may evict them.
	guarded map[*page]bool
}

// pool is the memory of one pool: all its pages in a list for each tier.
type pool struct {
	PoolConfig
	id       int
	device   []*page
	host     []*page
	counters inspect.PoolCounters
}

// page is a piece of memory. Who holds it is found by looking at everybody.
type page struct {
	number int
	tier   messages.Tier
	block  *block // the block that it caches; nil: none
	salt   string // of the sequence that took it last, on the device
}

// use is a moment at which a reference ended: the request, and in a request the
// place of the sequence.
type use struct {
	request uint64
	place   int
}

func (u use) before(v use) bool {
	return u.request < v.request || u.request == v.request && u.place < v.place
}

// New starts a model with empty memory.
func New(cfg Config) *Oracle {
	o := &Oracle{cfg: cfg, tpb: cfg.TokensPerBlock, guarded: map[*page]bool{}}
	o.storeTier = &StoreTier{o: o}
	for i, pc := range cfg.Pools {
		p := &pool{PoolConfig: pc, id: i}
		for n := range pc.Primary {
			p.device = append(p.device, &page{number: n, tier: messages.Primary})
		}
		for n := range pc.Secondary {
			p.host = append(p.host, &page{number: n, tier: messages.Secondary})
		}
		o.pool = append(o.pool, p)
		o.emit(kvevents.Event{
			Type: kvevents.EventCreated, Pool: messages.PoolID(i),
			PrimaryPages: pc.Primary, SecondaryPages: pc.Secondary,
		})
	}
	return o
}

// Pools describes the pools.
func (o *Oracle) Pools() []messages.PoolInfo {
	var all []messages.PoolInfo
	for i, p := range o.pool {
		all = append(all, messages.PoolInfo{
			ID: messages.PoolID(i), Name: p.Name, Kind: p.kind(), Window: p.Window, KVHeads: p.KVHeads, Layers: p.Layers,
			PageBytes: p.PageBytes, PrimaryPages: p.Primary, SecondaryPages: p.Secondary,
		})
	}
	return all
}

// begin starts a request: time passes first, timers that have ended act.
func (o *Oracle) begin() error {
	if o.closed {
		return refusals.New(messages.ErrClosed, "the engine is closed")
	}
	o.storeTier.writeCandidates()
	o.request++
	o.now = o.cfg.Clock()
	clear(o.guarded)
	o.expire()
	return nil
}

// kind is what the pages hold, by the engine's names.
func (p *pool) kind() string {
	if p.State {
		return "state"
	}
	return "attention"
}

// limited reports whether the pool has a window.
func (p *pool) limited() bool { return p.Window > 0 }

// sinkBlocks is the number of leading blocks that never leave the window.
func (o *Oracle) sinkBlocks(p *pool) int {
	if !p.limited() {
		return 0
	}
	return ceil(p.Sink, o.tpb)
}

// attends reports whether pages hold keys and values.
func (p *pool) attends() bool { return !p.State }

// needs reports whether the token at position attends, in pool p, to a token of
// block index that lies before position.
func (o *Oracle) needs(p *pool, index, position int) bool {
	first, end := index*o.tpb, (index+1)*o.tpb
	if first >= position || p.State {
		return false
	}
	if !p.limited() || index < o.sinkBlocks(p) {
		return true
	}
	return end-1 >= position-p.Window+1
}

// left reports whether block index has left the window of a sequence with so many
// computed tokens: its last token lies before computed−w+1 and after the sinks.
func (o *Oracle) left(p *pool, index, computed int) bool {
	if !p.limited() || index < o.sinkBlocks(p) {
		return false
	}
	return (index+1)*o.tpb-1 < computed-p.Window+1
}

func ceil(a, b int) int { return (a + b - 1) / b }
