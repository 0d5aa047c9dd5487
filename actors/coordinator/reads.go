package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// toEvents sends a request on to the events actor, which answers it. Keys are those
// of the tree, of which a snapshot is made; none if the request is no snapshot.
func toEvents(keys ...*protocol.Changes) destination {
	return func(port Port, request, sender any) { port.Events(request, sender, keys) }
}

// answering serves requests of one type that are answered at once, because they need no answers of
// other actors.
type answering[T any] struct {
	kernel *kernel
	answer func(*T)
}

func newAnswering[T any](c *Coordinator, answer func(*T)) answering[T] {
	return answering[T]{c.kernel, answer}
}

// start answers.
func (t answering[T]) start(request any) {
	t.answer(request.(*T))
	t.kernel.reply()
}

// readStats serves ReadStats: it copies counters and counts. No transaction is under way, so both
// are those between two rounds.
func (c *Coordinator) readStats(r *inspect.ReadStats) {
	r.Err = nil
	// The host's record keeps its array: statistics are read often, and allocate nothing.
	pools := r.Stats.Pools[:0]
	r.Stats = c.stats.Stats
	n := c.sequences.Counts()
	r.Stats.Sequences, r.Stats.LostSequences, r.Stats.AppendedTokens = c.sequences.Running(), n.Lost,
		n.Generated
	r.Stats.Waiting, r.Stats.Weights = c.waiting.requests(), c.config.Weights
	for p := range c.config.Pools {
		// Counts are those of the last answers, which are exact between rounds.
		s := c.stats.Pools[p]
		s.Primary, s.Secondary = c.counts.device[p].TierPages, c.counts.host[p]
		pools = append(pools, s)
	}
	r.Stats.Pools = pools
}

// readTables serves ReadTables: it copies the page tables of sequences. They change with the next
// request, and the host reads its answer then.
func (c *Coordinator) readTables(r *messages.ReadTables) {
	r.Err, r.Results = nil, resized(r.Results, len(r.Sequences))
	for i, id := range r.Sequences {
		result := &r.Results[i]
		result.Sequence, result.Err = id, nil
		// A lost sequence is refused, though it holds its pages: its tables are not to be used.
		s, refusal := c.sequences.Find(id)
		if refusal != nil {
			result.Err = refusal
			continue
		}
		result.Tables = s.CopyTables(result.Tables)
	}
}

// readScales serves ReadScales: it copies the scales.
func (c *Coordinator) readScales(r *messages.ReadScales) {
	r.Err, r.Scales = nil, append(r.Scales[:0], c.config.Scales...)
}

// close serves Close: it counts what sequences still hold. Pins are no leak: they end with the
// engine. A sequence that was not released is one.
func (c *Coordinator) close(r *protocol.Close) { r.LeakedPages = c.sequences.PagesHeld() }

// readEvents serves ReadEvents, OpenReader and CloseReader, whose answers are the
// events actor's.
type readEvents struct{ *shared }

// start changes nothing: the coordinator only gives such a request its place in the order of
// all requests.
func (t *readEvents) start(any) { t.kernel.deliver(toEvents()) }

// readTree serves what only the tree knows: ReadSnapshot, whose keys go to the events
// actor for the id that follows them, and ReadContents.
//
//	start ─▶ reading ─▶ answer, or on to the events actor
//
// The tree lists everything in one message, so the list is of one moment.
type readTree struct {
	*shared
	stages[readTree]
	contents *protocol.ReadContents // nil: a snapshot

	snapshot protocol.Snapshot
	blocks   protocol.Contents
}

// start asks the tree.
func (t *readTree) start(request any) {
	t.contents, _ = request.(*protocol.ReadContents)
	header := protocol.Header{Epoch: t.kernel.epoch}
	if t.contents != nil {
		// A new record for each request, since its lists go to the host with the answer.
		t.blocks = protocol.Contents{Header: header}
		t.wait(t, "read contents: reading", (*readTree).readContents)
		t.kernel.toTree(&t.blocks)
		return
	}
	t.snapshot = protocol.Snapshot{Header: header}
	t.wait(t, "read snapshot: reading", (*readTree).readSnapshot)
	t.kernel.toTree(&t.snapshot)
}

// readContents answers the blocks.
func (t *readTree) readContents() {
	t.contents.Err, t.contents.Blocks = nil, t.blocks.Blocks
	t.kernel.reply()
}

// readSnapshot passes the keys on.
func (t *readTree) readSnapshot() { t.kernel.deliver(toEvents(t.snapshot.Keys)) }

// expiry ends retention whose time has come, before the pools choose what goes. It
// goes before the transaction of a round. Behind a round it makes the tree forget the symbols of
// prompts that have ended.
//
//	start ─▶ applying ─▶ following ─▶ (the transaction of the round, if there is one)
//
// Only the tree knows when priorities end. Pools and offloader follow its effects.
type expiry struct {
	*shared
	stages[expiry]
}

// due tells whether a timer of the tree has ended.
// nextExpiry is 0 after a recovery, because the tree's last answer may have been lost, so
// the first round after one asks.
func (e *expiry) due() bool { return e.kernel.now >= e.out.nextExpiry }

// start sends the tree the time.
func (e *expiry) start() {
	e.wait(e, "expiry: applying", (*expiry).applied)
	e.kernel.active = e
	// A change without parts: the tree does what time alone has brought.
	e.out.resetChange()
	e.out.change.ReleasedSymbols = append(e.out.change.ReleasedSymbols, e.out.symbols...)
	e.out.symbols = e.out.symbols[:0]
	e.out.apply()
}

func (e *expiry) applied() {
	e.wait(e, "expiry: following", (*expiry).followed)
	e.out.applied()
	e.out.followUp()
}

// followed starts the transaction of the round, which sees the priorities as they are now.
func (e *expiry) followed() {
	e.out.followed()
	if e.kernel.active = nil; e.kernel.round.request != nil {
		e.kernel.serve()
	}
}
