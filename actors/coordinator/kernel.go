package coordinator

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// kernel serves one request after the other. It knows nothing about any request:
// a transaction does, which sends work through the kernel and is resumed when all
// answers have come.
//
//	Submit ─▶ queue ─▶ round: transaction.start
//	                      │ toTree, toPool, toOffloader: pending grows
//	Answered: pending − 1 │
//	          at 0        ▼
//	                   transaction.resume ─▶ … ─▶ reply, abort or passOn
//
// Messages have the epoch of the kernel. A failure of an actor begins a new epoch:
// answers of an older one are dropped by the caller of Answered, and whoever still
// has a record of it keeps the record.
type kernel struct {
	port    Port
	epoch   uint32
	queue   queue
	round   round
	active  transaction // is resumed when pending is 0; nil between rounds
	handoff handoff
	pending int // answers that are still to come

	now   time.Duration // of the round
	stamp uint64        // of the round, and of each time that it is served again
}

// round is the request being served.
type round struct {
	queued
	transaction transaction
	attempts    int // how often it has been served again after a failure
}

// transaction serves one kind of request. There is one of each kind, used again for
// every request of its kind. Its stage says what it waits for.
type transaction interface {
	// start does the first stage. It is called again when a recovery has undone the
	// transaction and the request is served once more.
	start()
	// resume does the stage that follows when all answers have come.
	resume()
	// undo takes back what the transaction has changed in the sequences, after an
	// actor has failed, and says how the recovery ends the round. With broken the
	// coordinator itself failed in the middle of a stage, and the scratch state of
	// the transaction may be inconsistent. Undo may be called more than once.
	undo(broken bool) verdict
	// check verifies the scratch state of a transaction that waits for answers.
	check() error
	// String names request and stage.
	String() string
}

// verdict says what a recovery does with the round that it has interrupted.
type verdict uint8

const (
	// serveAgain: nothing of the request has happened; it is started once more.
	serveAgain verdict = iota
	// answerNow: the sequences are as the request leaves them; it only has to be
	// answered, and the rebuilt pools are as the answer says.
	answerNow
	// carryOn: the request cannot be taken back any more; resume goes on.
	carryOn
)

// handoff is the request that the kernel has taken from one place and not yet put
// into another. Should the coordinator fail then, the request is neither in the
// queue nor in the round, and its caller would wait for ever.
type handoff struct {
	queued
	to    handoffState
	cause error               // to be aborted with
	keys  []*protocol.Changes // of a snapshot, for the events actor
}

// handoffState is where a request in handoff goes.
type handoffState uint8

const (
	toRound    handoffState = iota // back to the queue if that fails
	toSender                       // answered
	toAbort                        // to its sender, not served
	toEvents                       // to the events actor, which answers
	toAdmitted                     // to the admission queue; to the queue if that fails
)

// begin takes a request into a round; false if its caller has gone.
func (k *kernel) begin(q queued) bool {
	k.handoff = handoff{queued: q, to: toRound}
	begun := k.port.Begin(q.sender)
	k.handoff = handoff{}
	return begun
}

// open makes a request the one that is served, by a transaction.
func (k *kernel) open(q queued, t transaction) {
	k.round = round{queued: q, transaction: t}
	// Each round has its own stamp, and each time that it is served again, too: sequences
	// that it opens or touches are told from those of all others by it.
	k.stamp++
	k.now = k.port.Now()
}

// serve starts the transaction of the round.
func (k *kernel) serve() {
	k.active = k.round.transaction
	k.active.start()
}

// take ends the round and gives its request, which is about to go somewhere.
func (k *kernel) take(to handoffState, cause error) queued {
	q := k.round.queued
	// In handoff before it leaves the round: it is in one of the two at every moment.
	k.handoff = handoff{queued: q, to: to, cause: cause}
	k.round, k.active = round{}, nil
	return q
}

// reply ends the round: its request is answered.
func (k *kernel) reply() {
	q := k.take(toSender, nil)
	k.port.Reply(q.request, q.sender)
	k.handoff = handoff{}
}

// abort ends the round with an error.
func (k *kernel) abort(cause error) {
	q := k.take(toAbort, cause)
	k.port.Abort(q.request, q.sender, cause)
	k.handoff = handoff{}
}

// passOn ends the round: the events actor answers, a snapshot from these keys.
func (k *kernel) passOn(keys []*protocol.Changes) {
	q := k.take(toEvents, nil)
	k.handoff.keys = keys
	k.port.Events(q.request, q.sender, keys)
	k.handoff = handoff{}
}

// park ends the round without an answer. It returns the request, and false if its
// caller has gone.
func (k *kernel) park() (queued, bool) {
	q := k.take(toAdmitted, nil)
	waits := k.port.Park(q.sender)
	k.handoff = handoff{}
	return q, waits
}

// finishHandoff does what the kernel was about to do with a request when the
// coordinator failed. The request stays in handoff until that is done: should it
// fail again, it is tried again, until the engine is given up and stop answers.
func (k *kernel) finishHandoff() {
	h := k.handoff
	switch {
	case h.request == nil:
	case h.to == toSender:
		k.port.Reply(h.request, h.sender)
	case h.to == toAbort:
		k.port.Abort(h.request, h.sender, h.cause)
	case h.to == toEvents:
		k.port.Events(h.request, h.sender, h.keys)
	default:
		// It was the first, and will be again.
		k.queue.pushFirst(h.queued)
	}
	k.handoff = handoff{}
}

// cancel begins a new epoch: no answer of the old one counts any more.
func (k *kernel) cancel() {
	k.epoch++
	k.pending, k.active = 0, nil
}

// stop answers everything that waits with the cause: nothing is served any more.
func (k *kernel) stop(cause error) {
	for _, q := range []queued{k.handoff.queued, k.round.queued} {
		if q.request != nil {
			k.port.Abort(q.request, q.sender, cause)
		}
	}
	k.handoff, k.round, k.active = handoff{}, round{}, nil
	for {
		q, ok := k.queue.pop()
		if !ok {
			return
		}
		k.port.Abort(q.request, q.sender, cause)
	}
}

// toTree, toPool and toOffloader send a record and count its answer.
func (k *kernel) toTree(message any) {
	k.pending++
	k.port.Tree(message)
}

func (k *kernel) toPool(work *protocol.PoolWork) {
	k.pending++
	k.port.Pool(work)
}

func (k *kernel) toOffloader(message any) {
	k.pending++
	k.port.Offloader(message)
}

// resizePool, rebuildPool and auditPool send pools what they rarely get.
func (k *kernel) resizePool(m *protocol.ResizePool) {
	k.pending++
	k.port.ResizePool(m)
}

func (k *kernel) rebuildPool(m *protocol.RebuildPool) {
	k.pending++
	k.port.RebuildPool(m)
}

func (k *kernel) auditPool(m *protocol.Audit) {
	k.pending++
	k.port.PoolAudit(m)
}

// String draws the round and the queue.
func (k *kernel) String() string {
	state := "idle"
	if k.active != nil {
		state = fmt.Sprintf("%v, %d answers to come", k.active, k.pending)
	}
	return fmt.Sprintf("epoch %d: %s, %d queued\n", k.epoch, state, k.queue.len())
}
