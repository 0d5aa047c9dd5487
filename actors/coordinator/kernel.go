package coordinator

import (
	"fmt"
	"reflect"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Port carries the coordinator's messages. What goes to the tree, a pool or the
// offloader comes back as the same record through Answered; nothing else does.
type Port interface {
	Tree(message any)
	Pool(id messages.PoolID, message any)
	Offloader(message any)
	// Events passes a request on whose answer the events actor gives itself; keys
	// are those of the tree, for a snapshot.
	Events(request, sender any, keys []*protocol.Changes)
	// Store passes a request on whose answer the store's actor gives itself.
	Store(request, sender any)
	// Begin tells the sender that its request is being served; false drops the
	// request, because its caller has gone.
	Begin(sender any) bool
	// Park tells the sender that its request waits for pages; false drops the
	// request, because its caller has gone. Waits asks that again.
	Park(sender any) bool
	Waits(sender any) bool
	// Reply gives a request back to its sender, answered.
	Reply(request, sender any)
	// Abort tells the sender that its request could not be served.
	Abort(request, sender any, cause error)
	// Now is the time by which timers act.
	Now() time.Duration
}

// kernel serves one request after the other. It knows of a request only which
// transaction serves its type. The transaction sends work through the kernel and is resumed when
// all answers have come.
//
//	Submit ─▶ queue ─▶ round: transaction.start
//	                      │ toTree, toPool, toOffloader: pending grows
//	Answered: pending − 1 │
//	          at 0        ▼
//	                   task.resume ─▶ … ─▶ reply, abort, deliver or withdraw
//
// Messages have the epoch of the kernel. A failure of an actor begins a new epoch, and the caller
// of Answered drops answers of an older one. By then all records have come back, or the failure
// has ended their use, so the next round uses them again.
type kernel struct {
	port    Port
	serving map[reflect.Type]transaction // by the type of the request
	epoch   uint32
	queue   queue
	round   round
	active  task // is resumed when pending is 0; nil when nothing is under way
	handoff handoff
	pending int // answers that are still to come; > 0 only with an active task

	now   time.Duration // of the round
	stamp uint64        // of the round
}

// round is the request being served. Its transaction is nil until it is started, and again
// after a recovery has undone it.
type round struct {
	queued
	transaction transaction
}

// task is work that goes on in stages: it sends messages, waits for all answers and
// is resumed. A request's transaction is one; so is work that serves no request, such
// as a recovery. Its stage says what it waits for.
type task interface {
	// resume does the stage that follows when all answers have come.
	resume()
	// String names the task and its stage.
	String() string
}

// stages is embedded by tasks of type T: the stage that the task is in, and the method that
// follows it.
type stages[T any] struct {
	stage string
	task  *T
	next  func(*T)
}

// wait begins a stage. It is called before the messages of the stage are sent, since their
// receivers may answer at once. The method is given as an expression, (*T).method: a value,
// task.method, would be allocated.
func (s *stages[T]) wait(task *T, stage string, next func(*T)) {
	s.task, s.stage, s.next = task, stage, next
}

// resume does the stage that follows when all answers have come.
func (s *stages[T]) resume() { s.next(s.task) }

// String is the stage, which begins with the name of the task.
func (s *stages[T]) String() string { return s.stage }

// transaction serves one kind of request. There is one of each kind, used again for
// every request of its kind. One that needs answers of other actors is a task, too. If it fails,
// the recovery ends the sequences that it has opened and shares the pages of those that it has
// touched; one that has more to take back is an undoer.
type transaction interface {
	// start does the first stage of a request of its kind.
	start(request any)
}

// undoer is a transaction that has something to take back when an actor fails.
type undoer interface {
	// undo leaves the sequences as they were before the request. When the coordinator failed
	// in the middle of a stage, it comes after the sequences of the request were marked lost.
	undo()
}

// handoff is the request whose round has ended and which has not yet reached its
// destination. Should the coordinator fail then, it is delivered by the recovery.
type handoff struct {
	queued
	to destination
}

// destination delivers a request when its round ends. It may do so a second time, should the
// coordinator have failed over the first.
type destination func(port Port, request, sender any)

// begin tells the caller that its request, the round's, is being served; false if the caller
// has gone.
func (k *kernel) begin() bool {
	begun := k.port.Begin(k.round.sender)
	if !begun {
		k.round = round{}
	}
	return begun
}

// open makes the request of the round the one that is served.
func (k *kernel) open() {
	// Each round has its own stamp: sequences that it opens or touches are told from those of
	// all others by it.
	k.stamp++
	k.now = k.port.Now()
}

// serve starts the transaction of the round.
func (k *kernel) serve() {
	// Active before start sends anything, so that String and Check see what is under way.
	// A request that is answered where it starts has no stages and is no task.
	t := k.serving[reflect.TypeOf(k.round.request)]
	// The actor has refused what embeds no messages.Request before.
	if t == nil {
		k.abort(refusals.NoRequest(k.round.request))
		return
	}
	k.round.transaction = t
	k.active, _ = t.(task)
	t.start(k.round.request)
}

// deliver ends the round: its request goes to the destination.
func (k *kernel) deliver(to destination) {
	// In handoff before it leaves the round: it is in one of the two at every moment.
	k.handoff = handoff{k.round.queued, to}
	k.round, k.active = round{}, nil
	k.finishHandoff()
}

// reply ends the round: its request is answered.
func (k *kernel) reply() { k.deliver(Port.Reply) }

// abort ends the round with an error.
func (k *kernel) abort(cause error) {
	k.deliver(func(port Port, request, sender any) { port.Abort(request, sender, cause) })
}

// park ends the round without an answer, for a request that is to wait outside of the
// queue. It returns the request, and false if its caller has gone.
func (k *kernel) park() (queued, bool) {
	q := k.round.queued
	waits := k.port.Park(q.sender)
	k.round, k.active = round{}, nil
	return q, waits
}

// finishHandoff delivers the request in handoff, if there is one. The request stays there
// until that is done: should the coordinator fail, it is tried again, until the engine is
// given up and stop answers.
func (k *kernel) finishHandoff() {
	if h := &k.handoff; h.to != nil {
		h.to(k.port, h.request, h.sender)
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
	k.queue.stop(k.port, cause)
}

// toTree, toPool and toOffloader send a record and count its answer.
func (k *kernel) toTree(message any) {
	k.pending++
	k.port.Tree(message)
}

func (k *kernel) toPool(id messages.PoolID, message any) {
	k.pending++
	k.port.Pool(id, message)
}

func (k *kernel) toOffloader(message any) {
	k.pending++
	k.port.Offloader(message)
}

// String draws the round and the queue.
func (k *kernel) String() string {
	state := "idle"
	if k.active != nil {
		state = fmt.Sprintf("%v, %d answers to come", k.active, k.pending)
	}
	return fmt.Sprintf("epoch %d: %s, %d queued\n", k.epoch, state, k.queue.len())
}
