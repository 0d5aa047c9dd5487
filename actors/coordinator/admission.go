package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// admission serves Admit: a batch of prompts becomes running sequences. It also serves
// Prefetch, Lookup, PinPrefix and BeginImport, see prefetch.go, lookup.go, pin.go and import.go.
//
//	            ┌────────────────────────────────────────────────────────┐
//	            ▼                                                        │ retry
//	start ─▶ claiming ─▶ (decide, in order) ─▶ taking ─▶ moving ─▶ applying ─▶ following ─▶ (answer)
//	         see batch.go   │  ▲  │                │         │         │          │
//	                        │  │  │           pages taken, copies     the tree    pools and host
//	              no page   ▼  │  │           victims      into the   knows what  memory follow,
//	              left: refusing  │           named        pages      moved       references of beams
//	                              ▼                                               and of shared
//	                           parking ─▶ (queue)                                 onboards
//
// Every prompt is all or nothing: the counts tell before a page is taken whether
// all of them will be there. A prompt that is refused takes its claims back and has
// changed nothing. What may fail is a transfer. What could not be copied is
// forgotten then, and the prompts that wanted it are admitted again with what is
// left; each time there is less that could fail.
//
// What happens, in order, when a prompt finds its blocks in host memory and the copy of
// one fails (testdata/scripts/failed_onboard shows it):
//
//  1. claiming: the match says where the blocks are. Those on the device are claimed;
//     the table has NoPage for those in host memory.
//  2. decide: the blocks in host memory count as pages to be taken. The first prompt of
//     the batch that wants a block brings it in, later ones share its page.
//  3. taking: each pool takes the pages and names the victims that it evicts for them.
//  4. moving: one message to the offloader has the victims, the onboards and the
//     questions what pages wait for. It submits the copies. The device refuses one: that
//     onboard and copies from its page are marked as failed. The host page is as it was.
//  5. moved: the block of the failed onboard is to be forgotten, in the tree with its
//     pins and in host memory, and counts as dropped. Every prompt whose table has the
//     page that was not written is marked with errTransfer. The others claim.
//  6. applying: the tree learns of the victims, of the blocks that are on the device now and
//     of the lost one. Blocks behind the lost one stay stored, but no match reaches them until
//     it is stored again.
//  7. following: pools and host memory follow. Prompts that were served get their references
//     to shared pages and of further beams. Then the marked ones drop all their pages: those of
//     blocks that did arrive are cached, the others free. The offloader forgets the lost
//     contents and frees their host page.
//  8. retry: the answers of the served prompts are kept, and the marked ones begin again
//     at 1, whole blocks only: they find what is left, may be refused for want of pages
//     like any prompt, and may fail again, with fewer blocks each time. When no transfer
//     fails any more, all prompts are answered at once. The caller of a marked prompt sees
//     fewer reused tokens, and no error.
//
// Nothing here waits for bytes: a copy that the device has taken fails only with the device,
// and kernels wait for it by the tickets in Ready. When an actor fails in one of these stages
// the sequences of the whole batch end: see recovery.go.
type admission struct {
	*shared
	stages[admission]
	batch  *promptBatch
	taking promptTaking // of the batch
	name   string       // of the request
	// prefetch, lookup or pin is the request if it is none of an admission.
	prefetch *messages.Prefetch
	lookup   *messages.Lookup
	pin      *messages.PinPrefix
	held     []int                // by pool, the pages that were held before a pin
	pinned   [][]protocol.BlockID // by pool, what it holds
	counted  bool                 // Found of the lookup has what is stored
	next     int                  // the prompt to be decided about
	// retrying: transfers have failed and their prompts are being admitted once more.
	retrying bool
	lost     []protocol.Effect // host contents that failed transfers have lost
	// parked: the batch waits for pages, in place of an answer.
	parked bool
}

// start adds the prompts whose values are valid to the batch, and matches them.
func (a *admission) start(request any) {
	a.lost, a.retrying, a.parked = a.lost[:0], false, false
	a.prefetch, a.lookup, a.pin = nil, nil, nil
	a.batch.reset()
	switch r := request.(type) {
	case *messages.Prefetch:
		a.name = "prefetch"
		a.startPrefetch(r)
	case *messages.Lookup:
		a.name = "lookup"
		a.startLookup(r)
	case *messages.PinPrefix:
		a.name = "pin"
		a.startPin(r)
	case *protocol.BeginImport:
		a.name = "import"
		a.startImport(r)
	case *messages.Admit:
		a.name = "admission"
		r.Results = a.batch.addPrompts(r.Requests, r.Results)
	}
	a.match()
}

// match starts the stages with the prompts of the batch: all of them at first, and after
// failed transfers those that are admitted again.
func (a *admission) match() {
	a.next = 0
	// No prompt has valid values: there is nothing to match, and the answers are there.
	if len(a.batch.items) == 0 {
		a.end()
		return
	}
	a.batch.begin()
}

// claimed goes on when the batch is matched and claimed, which it is in stages of its own.
func (a *admission) claimed() {
	a.kernel.active = a
	switch {
	case a.lookup != nil:
		a.decideLookup()
	case a.pin != nil:
		a.decidePin()
	default:
		a.decide()
	}
}

// decide goes through the prompts in order: each is admitted, with its pages
// reserved, or refused. It stops whenever something has to be sent first.
func (a *admission) decide() {
	b := a.batch
	for ; a.next < len(b.items); a.next++ {
		it := &b.items[a.next]
		if it.refused != nil {
			continue
		}
		// Matched again, the prompt may reuse less, and it may claim pages that copies of
		// prompts before it count on; so it is looked at again when that is done.
		if b.withdrawUnusable(a.next) {
			return
		}
		// It has claimed nothing, and a working page would hold no state.
		if it.stored && b.match.Items[it.self].Matched == 0 {
			it.refused = errNothing
			continue
		}
		b.plan(a.next)
		refusal := a.capacity(it)
		// What it takes is only counted here: all pages of the batch are taken in one message.
		if refusal == nil {
			b.reserve(a.next)
			continue
		}
		if a.mayPark(it) {
			a.park(refusal)
		} else {
			a.refuse(it, refusal)
		}
		return
	}
	a.wait(a, "taking", (*admission).taken)
	a.out.pools.reset()
	a.taking.take()
}

// capacity is the refusal of a prompt that lacks pages. While another
// batch waits for pages, this one lacks them, whatever is there: a large one must
// not be starved by small ones. A prefetch holds nothing that could starve any.
func (a *admission) capacity(it *prompt) *messages.Refusal {
	// A batch that was taken out of the admission queue was the first there.
	if a.waiting.len() > 0 && !a.kernel.round.parked && a.prefetch == nil {
		return a.refuseAll(it)
	}
	return a.batch.checkCapacity(it)
}

// refuseAll is the refusal of a prompt that may take nothing at all. A sequence
// ends up with one page more at least, if only by a takeover.
func (a *admission) refuseAll(it *prompt) *messages.Refusal {
	for p := it.pools.first; p < it.pools.end; p++ {
		if need := a.batch.need(it, p); need > 0 {
			return a.pressure.lack(p, need, 0, need+it.plans[p].claimed)
		}
	}
	return a.pressure.lack(0, 1, 0, 1)
}

// refuse refuses the prompt that is decided about, and goes on with the next.
func (a *admission) refuse(it *prompt, refusal *messages.Refusal) {
	// A prefetch does not count as demand for memory: no request has waited for it.
	if a.prefetch == nil {
		a.pressure.noteRefusal(refusal)
	}
	// The prompt is done: when its claims are back, the next one is decided about.
	a.next++
	a.batch.refuse(it, refusal)
	a.wait(a, "refusing", (*admission).withdrawn)
	a.out.pools.send()
}

// withdrawn goes on with the next prompt when the claims of a refused one are back.
func (a *admission) withdrawn() {
	a.out.pools.received()
	a.batch.recountSources()
	a.decide()
}

// mayPark tells whether the batch waits because the prompt that is decided about
// lacks pages: nothing of the batch has been admitted, the prompt would fit if
// no one else held a page, and the admission queue has a place.
func (a *admission) mayPark(it *prompt) bool {
	if a.waiting.limit == 0 || a.retrying || a.prefetch != nil || a.batch.imported != nil {
		return false
	}
	for i := range a.batch.items[:a.next] {
		// A batch never waits with a part of it admitted, see admissionQueue.
		if a.batch.items[i].refused == nil {
			return false
		}
	}
	return a.batch.fitsAlone(it) && (a.kernel.round.parked || a.waiting.hasPlace())
}

// park takes all claims back before the batch waits for pages.
func (a *admission) park(refusal *messages.Refusal) {
	// The missing pages count as demand each time that the batch is tried: the shortage
	// lasts.
	a.parked = true
	a.pressure.noteRefusal(refusal)
	a.out.pools.reset()
	for _, it := range a.batch.open() {
		// Their sequences end like those of refused prompts; the results are not seen, for the
		// request is not answered.
		it.refused = refusal
		a.batch.unclaim(it, it.pools)
	}
	a.wait(a, "parking", (*admission).endParked)
	a.out.pools.send()
}

// endParked ends the sequences of a batch that waits; when it is tried again, it
// begins with its first stage.
func (a *admission) endParked() {
	a.out.pools.received()
	for i := range a.batch.items {
		a.endRefused(&a.batch.items[i])
	}
	a.batch.items = a.batch.items[:0]
	a.end()
}

// taken orders the copies into the pages.
func (a *admission) taken() {
	a.wait(a, "moving", (*admission).moved)
	a.taking.taken()
}

// moved tells the tree what moved and what was claimed. A prompt whose transfer
// failed claims nothing.
func (a *admission) moved() {
	a.out.moved()
	for p := range a.config.Pools {
		a.lost = a.taking.transferred(p, a.lost)
	}
	for i := range a.batch.items {
		it := &a.batch.items[i]
		// A prefetch and an import change neither session nor retention of a block: they claim none.
		if !it.served() || a.prefetch != nil || a.batch.imported != nil {
			continue
		}
		// Tickets belong to the record of this message, which the next message reuses.
		if it.query >= 0 {
			it.result.Ready = append(it.result.Ready[:0], a.out.move.tickets(it.query)...)
		}
		if it.input >= 0 {
			it.inputReady = slices.Clone(a.out.move.tickets(it.input))
		}
		a.claimReused(i)
	}
	a.wait(a, "applying", (*admission).applied)
	a.out.apply()
}

// claimReused tells the tree what a prompt reuses.
func (a *admission) claimReused(i int) {
	it := &a.batch.items[i]
	source := a.taking.takeover(i)
	if it.refused != nil {
		return
	}
	s := it.sequence
	a.claimBlocks(it.self, protocol.ClaimItem{Source: source, Session: s.Session,
		Retention: s.Retention, Prompt: int(s.Prompt)})
	if it.cross >= 0 {
		a.claimBlocks(it.cross, protocol.ClaimItem{
			Source: protocol.NoBlock, Session: s.Session, Retention: s.InputRetention,
			Prompt: int(s.Input.Length),
		})
	}
}

// claimBlocks tells the tree of the whole blocks of a match, and of the source of a claim.
func (a *admission) claimBlocks(match int, claim protocol.ClaimItem) {
	m := &a.batch.match.Items[match]
	claim.Blocks = m.IDs[:m.Blocks]
	a.out.saves.noteReuse(claim.Blocks)
	if m.Blocks > 0 || claim.Source != protocol.NoBlock {
		a.out.change.Claims = append(a.out.change.Claims, claim)
	}
}

// applied makes pools and host memory follow the tree. It adds the references that were not taken
// with the pages: to blocks that an earlier prompt has brought in, before that one may drop them,
// and those of further beams. What failed is dropped, without a use.
func (a *admission) applied() {
	a.out.applied()
	for i := range a.batch.items {
		a.claimShared(&a.batch.items[i])
	}
	for i := range a.batch.items {
		it := &a.batch.items[i]
		switch {
		case a.prefetch != nil:
			a.dropPrefetched()
		case it.refused == nil:
			a.taking.touchSource(i)
			a.addBeams(it)
		// Its pages have not been written, so no one may read them. They are dropped without a
		// use, as if they had never been taken.
		case it.failed():
			a.dropAll(it)
		}
	}
	// The tree has forgotten what could not be brought in; the offloader forgets it here,
	// with the host pages.
	for i := range a.lost {
		a.out.move.effect(&a.lost[i])
	}
	a.lost = a.lost[:0]
	a.wait(a, "following", (*admission).answer)
	a.out.followUp()
}

// claimShared gives a prompt its own references to pages that an earlier one has
// brought in. A prompt that failed has none, and takes them out of its table.
func (a *admission) claimShared(it *prompt) {
	for p := range it.plans {
		shared := it.plans[p].shared
		switch {
		case len(shared) == 0:
		case it.refused == nil:
			a.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: shared})
		case it.failed():
			table := it.sequence.Table(p)
			for k, page := range table { // shared is in the order of the table
				if len(shared) > 0 && page == shared[0] {
					table[k], shared = messages.NoPage, shared[1:]
				}
			}
		}
	}
}

// addBeams gives each further beam its own references to the pages of the prompt.
// A prompt in chunks has one table until it is computed.
func (a *admission) addBeams(it *prompt) {
	s := it.sequence
	if it.beams > 1 && !s.Chunked() {
		for p := range a.self.end {
			a.out.pools.claimBeams(p, s.Table(p), it.beams)
		}
	}
	s.Spread(it.beams)
}

// dropAll drops everything that a prompt took whose transfer failed.
func (a *admission) dropAll(it *prompt) {
	for p := range a.config.Pools {
		table := it.sequence.Table(p)
		a.out.pools.drop(it.sequence, p, table, 0)
		it.sequence.SetTable(p, table[:0])
	}
}

// answer fills in the answers of all prompts but those whose transfers failed:
// these are admitted again.
func (a *admission) answer() {
	a.out.followed()
	if a.prefetch != nil {
		a.batch.end()
		a.end()
		return
	}
	if a.batch.imported != nil {
		a.endImport()
		return
	}
	failed := false
	for i := range a.batch.items {
		it := &a.batch.items[i]
		switch {
		case it.refused == errAnswered:
		case it.refused == errTransfer:
			failed = true
		case it.stored && (it.refused == nil || it.refused == errNothing):
			a.fillStored(i)
		case it.refused != nil:
			a.endRefused(it)
		default:
			a.fillResult(i)
		}
	}
	// The others are complete, but they are not answered before all are: one request, one
	// answer.
	if failed {
		a.retry()
		return
	}
	a.end()
}

// retry admits the prompts whose transfers failed once more. The others stay in the batch, which
// matches them again for nothing.
func (a *admission) retry() {
	b := a.batch
	for i := range b.items {
		if it := &b.items[i]; it.refused == errTransfer {
			it.refused, it.reuse = nil, messages.PartialNone
		} else {
			it.refused = errAnswered
		}
	}
	// Whole blocks only, and the tokens have their symbols already.
	for i := range b.match.Items {
		b.match.Items[i].Multimodal, b.match.Items[i].Partial = nil, false
	}
	a.retrying = true
	b.forgetDecisions()
	a.match()
}

// end answers the request, or puts it into the admission queue.
func (a *admission) end() {
	if !a.parked {
		a.kernel.reply()
		return
	}
	if q, waits := a.kernel.park(); waits {
		a.waiting.put(q)
	}
}

// String names the stage.
func (a *admission) String() string { return a.name + ": " + a.stage }
