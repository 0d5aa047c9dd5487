package coordinator

import (
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Config is what the coordinator must know of the engine.
type Config struct {
	Pools          []windows.Pool
	Counts         []windows.Counts
	TokensPerBlock int
	MaxSeqLen      int
	// Reuse, Partial and CopyOnPartial are enable_block_reuse,
	// enable_partial_reuse and copy_on_partial_reuse.
	Reuse, Partial, CopyOnPartial bool
	// Tenants are the salts with quotas; all others are protocol.OtherTenants. The
	// pools and the offloader know the quotas.
	Tenants map[string]protocol.Tenant
	// Ahead is offload_ahead.
	Ahead bool
	// ReuseAll: a prompt may be reused to its last token. No logits are
	// computed from an encoder's input.
	ReuseAll bool
	// EncoderMaxLen is the longest encoder input; 0: the model has no encoder.
	EncoderMaxLen int
	// Scales are those of the layers that have some, as they start.
	Scales []messages.LayerScale
	// WaitingRoom is how many batches of admissions may wait for pages; 0: a
	// batch that finds none is refused.
	WaitingRoom int
	// RebalanceEvery, when above 0, is the number of rounds after which memory
	// may move by demand; OnRebalance is told of it before the next answer, on
	// the coordinator's goroutine.
	RebalanceEvery int
	OnRebalance    func(messages.Rebalanced)
	// Divide splits bytes between the pools by fractions, as the configuration does.
	Divide func(fractions map[string]float64, bytes int64) ([]int, error)
}

// Coordinator is the state of the actor that alone changes the others. It is
// plain and single-threaded: Submit and Answered are its only ways in, Port its
// only way out.
type Coordinator struct {
	Config
	port  Port
	epoch uint32

	line    line
	waiting waiting
	round   queued             // the request being served
	hand    hand               // on its way between line, round, room and answer
	pending int                // answers outstanding; the next stage runs at 0
	next    func(*Coordinator) // the stage after the answers
	after   func(*Coordinator) // the stage after effects are done
	extra   func(*Coordinator) // adds work that goes out with the effects

	sequences sequences
	pins      pins

	// What each pool said last; nobody else changes it. reserved is the sum of
	// the reserves of chunked prefills.
	pages    []protocol.PoolPages
	host     []messages.PageCounts
	reserved []int

	now        time.Duration
	nextExpiry time.Duration
	use        protocol.Use // the last one given
	stamp      uint64       // of the request
	// ordered: some transfer or kernel of the host has been recorded, so that
	// pages may not be ready at once.
	ordered bool

	*records

	lostHost []protocol.Effect  // host contents that a failed transfer lost
	letGo    [][]messages.Token // prompts whose symbols nobody holds any more

	admitting   admitting
	stepping    stepping
	releasing   releasing
	rebalancing rebalancing
	demanding   demanding
	regular     regular
	ahead       foresight
	recovering  recovering
	owed        []protocol.BlockMove // what moved and the tree has not been told yet
	moving      bool                 // the Move record is on its way
	settled     bool                 // the sequences are as the request leaves them
	checkedAt   int64                // the round after which a debug build has checked everything

	stats messages.Stats
}

// New makes a coordinator of empty pools.
func New(config Config, port Port) *Coordinator {
	n := len(config.Pools)
	config.Counts, config.Scales = slices.Clone(config.Counts), slices.Clone(config.Scales)
	c := &Coordinator{
		Config: config, port: port, nextExpiry: protocol.NoExpiry,
		pages: make([]protocol.PoolPages, n), host: make([]messages.PageCounts, n), reserved: make([]int, n),
		records: newRecords(n),
	}
	c.sequences.pools = n
	c.waiting.limit = config.WaitingRoom
	c.pins.init(n)
	c.stats.Pools = make([]messages.PoolStats, n)
	for p := range n {
		count := config.Counts[p]
		c.pages[p].PageCounts = messages.PageCounts{Total: count.Primary, Free: count.Primary}
		c.host[p] = messages.PageCounts{Total: count.Secondary, Free: count.Secondary}
		c.stats.Pools[p].Name = config.Pools[p].Name
	}
	c.demanding.init(n)
	c.ahead.churn, c.ahead.taken, c.ahead.peak = make([]int, n), make([]int, n), make([]int, n)
	c.admitting.init(n)
	c.stepping.init(n)
	return c
}

// Queue puts a request into the line and leaves it there.
func (c *Coordinator) Queue(request, sender any) {
	c.line.push(queued{request: request, sender: sender})
}

// Submit queues a request and serves it if nothing else is under way.
func (c *Coordinator) Submit(request, sender any) {
	c.line.push(queued{request: request, sender: sender})
	c.run()
}

// Answered counts one answer; the record is one that the coordinator sent.
func (c *Coordinator) Answered() {
	c.pending--
	c.run()
}

// Awaits tells whether answers are due.
func (c *Coordinator) Awaits() bool { return c.pending > 0 }

// Queued is the number of requests that wait.
func (c *Coordinator) Queued() int { return c.line.len() }

// run serves until an answer is needed or nothing is left to do.
func (c *Coordinator) run() {
	for c.pending == 0 {
		if stage := c.next; stage != nil {
			c.next = nil
			stage(c)
			continue
		}
		if c.round.request != nil || !c.rebalanceDue() && !c.begin() && !c.checkRound() && !c.lookAhead() {
			return
		}
	}
}

// begin takes the next request; timers that have ended act before it.
func (c *Coordinator) begin() bool {
	q, ok := c.called()
	if !ok {
		q, ok = c.line.pop()
	}
	if !ok {
		return false
	}
	c.hand = hand{queued: q}
	begun := c.port.Begin(q.sender)
	c.hand = hand{}
	if !begun {
		return true
	}
	c.stats.Rounds++
	c.open(q)
	c.start()
	return true
}

// start lets retention end whose time has come, before the pools choose what
// goes; then it starts the request.
func (c *Coordinator) start() {
	if c.now < c.nextExpiry {
		c.dispatch()
		return
	}
	c.resetApply()
	c.sendApply((*Coordinator).dispatch)
}

// open makes a request the one that is served.
func (c *Coordinator) open(q queued) {
	c.round = q
	c.stamp++
	c.settled, c.recovering.attempts = false, 0
	// What the last round was about is no longer under way: a failure before
	// this one has started must not undo it.
	c.forgetRound()
	c.now = c.port.Now()
}

// dispatch starts the first stage of the request.
func (c *Coordinator) dispatch() {
	switch r := c.round.request.(type) {
	case *messages.Admit:
		c.admit(r)
	case *messages.Commit:
		c.commit(r)
	case *messages.Append:
		c.append(r)
	case *messages.Release:
		c.release(r)
	default:
		c.dispatchRare(r)
	}
}

// dispatchRare starts the requests that no engine step makes.
func (c *Coordinator) dispatchRare(request any) {
	switch r := request.(type) {
	case *messages.Rewind:
		c.rewind(r)
	case *messages.Fork:
		c.fork(r)
	case *messages.ReadTables:
		c.readTables(r)
	case *messages.Lookup:
		c.lookup(r)
	case *messages.PinPrefix:
		c.pin(r)
	case *messages.UnpinPrefix:
		c.unpin(r)
	case *messages.Prefetch:
		c.prefetch(r)
	case *messages.Invalidate:
		c.invalidate(r)
	case *messages.Reset:
		c.reset(r)
	case *messages.Rebalance:
		c.rebalance(r)
	case *messages.ReadStats:
		c.readStats(r)
	case *messages.ReadEvents:
		c.readEvents(r)
	case *messages.ReadSnapshot, *protocol.JoinSnapshot, *protocol.ReadKeys:
		c.readSnapshot()
	case *messages.ReadContents:
		c.readContents(r)
	case *messages.Check:
		c.check(r)
	case *protocol.DryRunAdmit:
		c.rehearse(r)
	case *protocol.ReadSequences:
		c.readSequences(r)
	case *protocol.LoseSequences:
		c.loseSequences(r)
	case *messages.WriteScales:
		c.writeScales(r)
	case *messages.ReadScales:
		c.readScales(r)
	case *protocol.Close:
		r.LeakedPages = c.sequences.pagesHeld()
		c.reply()
	default:
		c.abort(messages.Refuse(messages.BadRequest, "%T is no request", request))
	}
}

// reply ends the round.
func (c *Coordinator) reply() {
	c.hand, c.round = hand{queued: c.round, to: answered}, queued{}
	c.port.Reply(c.hand.request, c.hand.sender)
	c.hand = hand{}
}

// nextUse returns a use that is later than every use before it.
func (c *Coordinator) nextUse() protocol.Use {
	c.use = c.use.Next()
	return c.use
}
