package coordinator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Coordinator is the state of the actor that alone changes the others: one
// transaction for each kind of request, and what they share. Requests come in by Submit,
// answers of actors by Answered; Queue, Departed, Failed and Stop tell what happens to
// hosts and actors. Port is its way out.
//
// One goroutine calls it, and none of its methods waits: each returns when an answer of another
// actor is needed or nothing is left to do.
type Coordinator struct {
	*shared

	audit *audit

	// These are no requests: they go before the next one, or when nothing waits.
	expiry    *expiry
	rebalance *rebalance
	lookAhead *lookAhead
	saving    *saving
	recovery  *recovery
}

// New makes a coordinator of empty pools. It sends nothing; the first message goes out with the
// first request.
func New(config Config, port Port) *Coordinator {
	// A rebalance and WriteScales change these; the caller's configuration stays as it is.
	config.Counts, config.Scales = slices.Clone(config.Counts), slices.Clone(config.Scales)
	config.identify()
	parts := newShared(&config, port)
	// One batch of prompts and one of steps serve all transactions that need them: only one
	// transaction is under way at a time.
	prompts, steps := newPromptBatch(parts), newStepBatch(parts)
	// A Commit and the second half of an Append are the same stages.
	committing := &commitStages{shared: parts, batch: steps}
	c := &Coordinator{
		shared:    parts,
		audit:     &audit{shared: parts},
		saving:    &saving{shared: parts},
		expiry:    &expiry{shared: parts},
		lookAhead: newLookAhead(parts),
		recovery:  &recovery{shared: parts, moved: map[poolBlock]bool{}},
	}
	c.rebalance = &rebalance{shared: parts, recovery: c.recovery}
	forgetting, reading, readEvents := &forget{shared: parts}, &readTree{shared: parts},
		&readEvents{parts}
	admitting := &admission{shared: parts, batch: prompts, taking: promptTaking{prompts}}
	prompts.ready = admitting.claimed
	// No other place chooses what serves a request.
	parts.kernel.serving = map[reflect.Type]transaction{
		reflect.TypeFor[*messages.Admit](): admitting,
		reflect.TypeFor[*messages.Commit](): &commit{shared: parts, batch: steps,
			committing: committing},
		reflect.TypeFor[*messages.Append](): &extension{shared: parts, batch: steps,
			committing: committing},
		reflect.TypeFor[*messages.Release]():          &release{shared: parts},
		reflect.TypeFor[*messages.Rewind]():           &rewind{shared: parts},
		reflect.TypeFor[*messages.Fork]():             &fork{shared: parts},
		reflect.TypeFor[*messages.ReadTables]():       newAnswering(c, c.readTables),
		reflect.TypeFor[*messages.Lookup]():           admitting,
		reflect.TypeFor[*messages.Prefetch]():         admitting,
		reflect.TypeFor[*messages.PinPrefix]():        admitting,
		reflect.TypeFor[*messages.UnpinPrefix]():      &unpin{shared: parts},
		reflect.TypeFor[*messages.Invalidate]():       forgetting,
		reflect.TypeFor[*messages.Reset]():            forgetting,
		reflect.TypeFor[*messages.SetWeights]():       forgetting,
		reflect.TypeFor[*messages.Rebalance]():        c.rebalance,
		reflect.TypeFor[*messages.ReadScales]():       newAnswering(c, c.readScales),
		reflect.TypeFor[*messages.WriteScales]():      forgetting,
		reflect.TypeFor[*inspect.Check]():             c.audit,
		reflect.TypeFor[*inspect.ReadStats]():         newAnswering(c, c.readStats),
		reflect.TypeFor[*inspect.ReadOverview]():      &overview{shared: parts},
		reflect.TypeFor[*kvevents.ReadEvents]():       readEvents,
		reflect.TypeFor[*kvevents.OpenReader]():       readEvents,
		reflect.TypeFor[*kvevents.CloseReader]():      readEvents,
		reflect.TypeFor[*kvevents.ReadSnapshot]():     reading,
		reflect.TypeFor[*protocol.ReadContents]():     reading,
		reflect.TypeFor[*protocol.Fetch]():            &fetch{shared: parts},
		reflect.TypeFor[*protocol.Flush]():            &flush{parts},
		reflect.TypeFor[*protocol.Close]():            newAnswering(c, c.close),
		reflect.TypeFor[*protocol.DescribeSequence](): &describe{shared: parts},
		reflect.TypeFor[*protocol.TransferPages]():    &transfer{shared: parts},
		reflect.TypeFor[*protocol.BeginImport]():      admitting,
	}
	// Check walks all transactions, so it cannot be made before them.
	c.audit.own = c.Check
	c.out.pools.observe = c.lookAhead.noteDemand
	return c
}

// Queue adds a request to the queue and leaves it there.
// The shell uses it while a recovery is being prepared, when nothing may be served. Submit or
// the next answer serves it.
func (c *Coordinator) Queue(request, sender any) {
	c.kernel.queue.push(queued{request: request, sender: sender})
}

// Submit queues a request and serves it if nothing else is under way. The answer goes through
// Port, perhaps before Submit returns.
func (c *Coordinator) Submit(request, sender any) {
	c.Queue(request, sender)
	c.run()
}

// Answered counts one answer; the record is one that the coordinator sent. With it the record
// is the coordinator's again. The stage that follows runs when no other answer is missing.
func (c *Coordinator) Answered() {
	// The caller has compared the epochs: an answer of an older one is not counted.
	c.kernel.pending--
	c.run()
}

// Departed tells that the caller of a request that waits for pages has gone.
func (c *Coordinator) Departed() { c.run() }

// Failed begins a recovery from the failure of an actor, the coordinator's own
// included. What is under way is given up. The caller first waits until every actor has sent
// back the records that it was lent, since undo and the recovery read what is in them.
func (c *Coordinator) Failed(f Failure) {
	c.recovery.stats.Restarts++
	// Also in the middle of a recovery, which is begun once more then.
	c.recovery.begin(f)
	c.run()
}

// Restarted counts an actor that was restarted and needs no recovery.
func (c *Coordinator) Restarted() { c.recovery.stats.Restarts++ }

// Stop answers everything that waits with the cause: nothing is served any more. The request
// under way is answered first, then those of the queue, then the batches that wait for pages.
func (c *Coordinator) Stop(cause error) {
	c.kernel.stop(cause)
	c.waiting.queue.stop(c.kernel.port, cause)
}

// Awaits tells whether answers are due. While it is true no stage runs: the state is that
// between two stages, with records lent.
func (c *Coordinator) Awaits() bool { return c.kernel.pending > 0 }

// Queued is the number of requests that wait.
func (c *Coordinator) Queued() int { return c.kernel.queue.len() }

// Epoch is the epoch that answers must have.
func (c *Coordinator) Epoch() uint32 { return c.kernel.epoch }

// run serves until an answer is needed or nothing is left to do. Each turn runs one stage, or
// begins one round or one task that serves no request. The loop ends with answers to come, or
// with nothing that waits.
func (c *Coordinator) run() {
	k := c.kernel
	// A loop and no recursion: a long queue of requests that need no answers is served without
	// growing the stack.
	for k.pending == 0 {
		switch {
		// All answers have come, or none was asked for: the stage that follows runs at once.
		case k.active != nil:
			k.active.resume()
		case k.round.request != nil: // opened
			c.startRound()
		case !c.next():
			return
		}
	}
}

// startRound starts the transaction of the round, after timers that have ended. An expiry is a
// task of its own before the transaction; the round waits for it and is served when it ends.
func (c *Coordinator) startRound() {
	// Before the pools choose what to evict: a priority that has ended counts no more.
	// The round has its time already, so the expiry and the transaction act at one moment.
	if c.expiry.due() {
		c.expiry.start()
		return
	}
	c.kernel.serve()
}

// next begins what comes next: the first batch that waits for pages, the next request or a
// rebalance that is due before it, then what is done when nothing waits. It returns false if
// there is nothing.
func (c *Coordinator) next() bool {
	k := c.kernel
	// Before anything is evicted that the round before has stored or reused.
	if c.saving.begin() {
		return true
	}
	if len(c.out.symbols) > 0 {
		c.expiry.start()
		return true
	}
	// Those that wait for pages come first, but only when they may find some.
	// A batch that waits would otherwise lose its turn to every request that came after it.
	if q := &k.round.queued; c.waiting.next(q) || k.queue.pop(q) {
		// A request whose caller has gone is dropped here, before it costs anything.
		if !k.begin() {
			return true
		}
		// It is served before the step that has begun: hosts are told of the new page numbers
		// before they get the answer of that step. No second move follows: batches that wait try
		// again after the first, and what they lack then may ask for the memory back, for ever.
		if !k.round.parked && !k.round.followsMove && c.rebalance.due(k.round.request) {
			k.round.followsMove = true
			k.queue.pushFirst(k.round.queued)
			k.round.queued = queued{request: &c.rebalance.auto}
		} else {
			c.stats.Rounds++
		}
		c.kernel.open()
		return true
	}
	// Never due in a build without the tag invariants.
	if c.audit.due() {
		// Served at once, past the timers: builds with checks do what others do.
		k.round.request, k.round.sender = &inspect.Check{}, itself{}
		c.kernel.open()
		k.serve()
		return true
	}
	// Last of all: copying ahead is worth something only while the link has nothing to do.
	return c.lookAhead.due() && c.lookAhead.begin()
}

// PagesHeld counts the device pages that sequences hold, each once. It may be called
// in the middle of a round, also of one that has panicked.
func (c *Coordinator) PagesHeld() int { return c.sequences.PagesHeld() }

// Check verifies every relation that the coordinator holds, and joins what is wrong. It reads
// the coordinator's own state only; audit compares that with what the other actors have.
func (c *Coordinator) Check() error {
	problems := []error{c.sequences.Check(), c.pins.check(), c.recovery.check()}
	// A recovery of a rebalance goes back to other totals before the pools do.
	if c.recovery.stage == "" {
		problems = append(problems, c.counts.check())
	}
	// In a round the queue may be one batch short, or about to be tried.
	if c.kernel.round.request == nil {
		problems = append(problems, c.waiting.check())
	}
	// A rebalance changes both the pools and the configuration's counts, so they differ while it runs.
	// A recovery from one must end with them equal, or a pool would use memory that the device
	// doesn't have.
	if c.kernel.round.request == nil && c.kernel.active == nil {
		for p := range c.config.Pools {
			if n, want := c.counts.device[p].Total, c.config.Counts[p].Primary; n != want {
				problems = append(problems, fmt.Errorf(
					"pool %s has %d pages, and the configuration gives it %d", c.config.Pools[p].Name, n, want))
			}
		}
	}
	return errors.Join(problems...)
}

// String draws the coordinator: the task under way, what waits, pools and sequences. Pools come in
// the order of their ids, so that scripts can compare the text.
func (c *Coordinator) String() string {
	var w strings.Builder
	w.WriteString(c.kernel.String())
	w.WriteString(c.waiting.String())
	// What pools and host memory said last, not what they hold now: in the middle of a round
	// the two differ.
	for p := range c.config.Pools {
		w.WriteString(c.counts.draw(p))
	}
	w.WriteString(c.sequences.String())
	return w.String()
}

// poolRange is some pools in the order of their ids: those of blocks of tokens, the
// state pools, the cross pools, or all. Ids are given in this order, so every such group is a
// range: with t pools of blocks and s self pools of n pools in all, self is [0, t), states [t,
// s), decoder [0, s), cross [s, n) and all [0, n).
type poolRange struct{ first, end int }

// empty tells whether there is no pool in the range.
func (r poolRange) empty() bool { return r.first >= r.end }

// has tells whether a pool is in the range.
func (r poolRange) has(p int) bool { return p >= r.first && p < r.end }

// shared is what transactions have in common. It has no methods: each part has its
// own, and holds its own relations. Every transaction points to the same parts. What a
// transaction keeps for itself belongs to the round under way and is made up again by the next
// start.
type shared struct {
	config    *Config
	all       poolRange
	self      poolRange // of blocks of the decoder's tokens
	states    poolRange // of recurrent layers; behind self, none without such layers
	decoder   poolRange // self and states: matched by the decoder's tokens
	cross     poolRange // matched by the input of the encoder; none without one
	kernel    *kernel
	sequences *sequence.Arena
	counts    *pageCounts // what pools and offloader said last
	out       *outgoing   // work on its way to tree, pools and offloader
	pins      *pins
	stats     *statistics
	uses      *useClock
	waiting   *admissionQueue // admissions that wait for pages
	pressure  *poolPressure   // which pool's shortage costs how much
	thrash    *thrash         // what was evicted too early
}

// newShared makes the parts of a coordinator of empty pools.
func newShared(config *Config, port Port) *shared {
	n := len(config.Pools)
	p := &shared{
		config: config, kernel: &kernel{port: port}, sequences: sequence.NewArena(config.Pools,
			config.TokensPerBlock, config.FirstGeneration),
		pins: newPins(n), stats: newStatistics(config), uses: &useClock{},
	}
	tokens, self := config.tokenPools(), config.selfPools()
	p.all, p.decoder = poolRange{0, n}, poolRange{0, self}
	p.self, p.states, p.cross = poolRange{0, tokens}, poolRange{tokens, self}, poolRange{self, n}
	// In the order in which the parts need each other: the counts ask the sequences for their
	// reserves, the queue and the pressure compare with the counts.
	p.counts = newPageCounts(config, p.sequences)
	p.waiting = &admissionQueue{limit: config.WaitingRoom, port: port, counts: p.counts}
	p.pressure = newPoolPressure(config, p.counts, p.stats)
	p.thrash = newThrash(config)
	p.out = &outgoing{
		shared: p, saves: newSaves(config), nextExpiry: protocol.NoExpiry,
		pools: poolBatches{shared: p, work: make([]protocol.PoolWork, n)},
		move:  moveBatch{shared: p, record: protocol.Move{Pools: make([]protocol.PoolMove, n)}},
	}
	return p
}
