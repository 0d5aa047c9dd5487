package coordinator

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// oneStage is a transaction that is answered where it starts.
type oneStage struct{}

func (oneStage) resume()           {}
func (oneStage) undo(bool) verdict { return serveAgain }
func (oneStage) check() error      { return nil }

// readStats serves ReadStats: it copies the counters.
type readStats struct {
	oneStage
	*shared
	request *messages.ReadStats
}

func (t *readStats) start() {
	r := t.request
	r.Err = nil
	pools := r.Stats.Pools[:0]
	r.Stats = t.stats.Stats
	r.Stats.Sequences = t.sequences.Running()
	for p := range t.config.Pools {
		// Counts are those of the last answers, which are exact between rounds.
		s := t.stats.Pools[p]
		s.Primary, s.Secondary = t.counts.device[p].PageCounts, t.counts.host[p]
		pools = append(pools, s)
	}
	r.Stats.Pools = pools
	t.kernel.reply()
}

func (t *readStats) String() string { return "read stats" }

// readTables serves ReadTables: it copies the page tables of sequences.
type readTables struct {
	oneStage
	*shared
	request *messages.ReadTables
}

func (t *readTables) start() {
	r := t.request
	for len(r.Results) < len(r.Sequences) {
		r.Results = append(r.Results, messages.TablesResult{})
	}
	r.Err, r.Results = nil, r.Results[:len(r.Sequences)]
	for i, id := range r.Sequences {
		result := &r.Results[i]
		result.Sequence, result.Err = id, nil
		s, refusal := t.sequences.Find(id)
		if refusal != nil {
			result.Err = refusal
			continue
		}
		result.Tables = s.CopyTables(result.Tables)
	}
	t.kernel.reply()
}

func (t *readTables) String() string { return "read tables" }

// readEvents serves ReadEvents, OpenReader and CloseReader, whose answers are the
// events actor's.
type readEvents struct {
	oneStage
	*shared
}

func (t *readEvents) start()         { t.kernel.passOn(nil) }
func (t *readEvents) String() string { return "read events" }

// readScales serves ReadScales: it copies the scales.
type readScales struct {
	oneStage
	*shared
	request *messages.ReadScales
}

func (t *readScales) start() {
	t.request.Err = nil
	t.request.Scales = append(t.request.Scales[:0], t.config.Scales...)
	t.kernel.reply()
}

func (t *readScales) String() string { return "read scales" }

// writeScales serves WriteScales: all scales are checked before any is set. They are
// the coordinator's own and outlive the failure of any actor.
type writeScales struct {
	oneStage
	*shared
	request *messages.WriteScales
}

func (t *writeScales) start() {
	r := t.request
	r.Err = nil
	if refusal := t.config.validateScales(r.Scales); refusal != nil {
		r.Err = refusal
		t.kernel.reply()
		return
	}
	for _, s := range r.Scales {
		t.config.Scales[t.config.scaleOf(s)] = s
	}
	t.kernel.reply()
}

func (t *writeScales) String() string { return "write scales" }

// closing serves Close: it counts what sequences still hold.
type closing struct {
	oneStage
	*shared
	request *protocol.Close
}

func (t *closing) start() {
	t.request.LeakedPages = t.sequences.PagesHeld()
	t.kernel.reply()
}

func (t *closing) String() string { return "close" }

// unknown refuses what is no request.
type unknown struct {
	oneStage
	*shared
	request any
}

func (t *unknown) start() {
	t.kernel.abort(messages.Refuse(messages.BadRequest, "%T is no request", t.request))
}

func (t *unknown) String() string { return fmt.Sprintf("unknown request %T", t.request) }

// readTree serves what only the tree knows: ReadSnapshot, whose keys go to the events
// actor for the id that follows them, and ReadContents.
//
//	start ─▶ reading ─▶ answer, or on to the events actor
type readTree struct {
	*shared
	contents *messages.ReadContents // nil: a snapshot

	snapshot protocol.Snapshot
	blocks   protocol.Contents
	reading  bool
}

// open begins a request.
func (t *readTree) open(contents *messages.ReadContents) { t.contents, t.reading = contents, false }

// start asks the tree.
func (t *readTree) start() {
	t.reading = true
	header := protocol.Header{Epoch: t.kernel.epoch}
	if t.contents != nil {
		t.blocks = protocol.Contents{Header: header}
		t.kernel.toTree(&t.blocks)
		return
	}
	t.snapshot = protocol.Snapshot{Header: header}
	t.kernel.toTree(&t.snapshot)
}

// resume passes on what the tree has answered.
func (t *readTree) resume() {
	if t.contents != nil {
		t.contents.Err, t.contents.Blocks = nil, t.blocks.Blocks
		t.kernel.reply()
		return
	}
	t.kernel.passOn([]*protocol.Changes{t.snapshot.Keys})
}

// renew takes new records for a new epoch.
func (t *readTree) renew() { t.snapshot, t.blocks = protocol.Snapshot{}, protocol.Contents{} }

func (t *readTree) undo(bool) verdict { return serveAgain }

func (t *readTree) check() error { return nil }

// String names request and stage.
func (t *readTree) String() string {
	name, stage := "snapshot", "idle"
	if t.contents != nil {
		name = "contents"
	}
	if t.reading {
		stage = "reading"
	}
	return fmt.Sprintf("read %s: %s", name, stage)
}

// expiry ends retention whose time has come, before the pools choose what goes. It
// goes before the transaction of a round.
//
//	start ─▶ applying ─▶ following ─▶ (the transaction of the round)
type expiry struct {
	*shared
	following bool // pools and host memory follow; else the tree applies
}

// due tells whether a timer of the tree has ended.
func (e *expiry) due() bool { return e.kernel.now >= e.out.nextExpiry }

// start sends the tree the time.
func (e *expiry) start() {
	e.following = false
	e.kernel.active = e
	// A change without parts: the tree does what time alone has brought.
	e.out.resetChange()
	e.out.apply()
}

// resume does the stage that follows.
func (e *expiry) resume() {
	if !e.following {
		e.following = true
		e.out.applied()
		e.out.followUp()
		return
	}
	e.out.followed()
	e.kernel.serve()
}

// undo is not called: the round is that of the transaction behind it.
func (e *expiry) undo(bool) verdict { return serveAgain }

func (e *expiry) check() error { return nil }

// String names the stage.
func (e *expiry) String() string {
	if e.following {
		return "expiry: following"
	}
	return "expiry: applying"
}
