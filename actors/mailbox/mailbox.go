package mailbox

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// DefaultBudget is how many messages a sender works off before a worker takes
// over. With 32 the longest Send seen under overload was 13 ms, without a bound
// it was 3.3 s; smaller budgets only wake the worker more often.
const DefaultBudget = 32

// Mailbox is the queue of one actor, and the turn of the goroutine that runs it. It
// implements actor.Mailbox. Make it with Inline or Queued.
//
// At any time at most one goroutine is its runner; fields marked so are the
// runner's own, all others belong to the lock. A started mailbox that has no
// runner and is not suspended has empty queues.
type Mailbox struct {
	mu        sync.Mutex
	user      queue
	system    queue
	running   bool
	suspended bool
	started   bool // by Start; before, all messages wait

	budget  int // messages that a sender works off; 0: never inline
	onAbort AbortFunc

	invoker  guard
	dispatch actor.Dispatcher
	resume   func() // m.runScheduled; kept, since a method value allocates

	left    int // runner: messages until its turn ends
	current any // runner: the message in hand, for a panic
}

var _ actor.Mailbox = (*Mailbox)(nil)

func newMailbox(budget int, options []Option) *Mailbox {
	m := &Mailbox{budget: budget}
	m.resume = m.runScheduled
	for _, o := range options {
		o(m)
	}
	return m
}

// PostUserMessage queues a message, or runs the actor if it is idle. It panics
// on nil, which no actor can receive.
func (m *Mailbox) PostUserMessage(x any) {
	mustBeMessage(x)
	m.mu.Lock()
	m.user.push(x)
	m.start()
}

// PostSystemMessage queues a system message, or runs the actor if it is idle.
func (m *Mailbox) PostSystemMessage(x any) {
	if p, ok := x.(*probe); ok {
		p.mailbox = m
		return
	}
	m.mu.Lock()
	m.system.push(x)
	m.start()
}

// RegisterHandlers tells who receives and who runs. The library calls it once,
// when others may already send to the actor by its name.
func (m *Mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.mu.Lock()
	m.invoker = newGuard(invoker, m.onAbort)
	m.dispatch = dispatcher
	m.mu.Unlock()
}

// Start makes the actor receive. The library has posted the actor's Started by
// then, so nothing that was sent to the name before is received before it.
func (m *Mailbox) Start() {
	m.mu.Lock()
	m.started = true
	m.start()
}

// UserMessageCount is the number of user messages that wait.
func (m *Mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.user.waiting()
}

// start, called with the lock held, releases it and begins a turn if there is
// something to do and no goroutine does it.
func (m *Mailbox) start() {
	idle := m.started && !m.running && (m.system.waiting() > 0 || !m.suspended && m.user.waiting() > 0)
	if idle {
		m.running = true
	}
	m.mu.Unlock()
	switch {
	case !idle:
	case m.budget > 0:
		m.left = m.budget
		m.run()
	default:
		m.dispatch.Schedule(m.resume)
	}
}

// runScheduled is a turn on a dispatcher's goroutine.
func (m *Mailbox) runScheduled() {
	m.left = max(1, m.dispatch.Throughput())
	m.run()
}

// run is one turn: it delivers what waits until nothing does or the turn is over. A panic
// of the actor ends only the delivery it happened in. If the goroutine itself is lost
// (runtime.Goexit in a Receive, or a panic of the supervisor), the dispatcher goes on in its place.
func (m *Mailbox) run() {
	whole := false
	defer func() {
		if whole {
			return
		}
		if x := m.current; x != nil {
			m.current = nil
			m.invoker.abort(x, fmt.Errorf("%w: its goroutine has ended", ErrPanicked))
		}
		m.dispatch.Schedule(m.resume)
	}()
	for m.deliver() { // again after a panic
	}
	whole = true
}

// deliver works until the turn ends (false) or the actor has panicked (true).
func (m *Mailbox) deliver() (again bool) {
	defer func() {
		if reason := recover(); reason != nil {
			again = true
			x := m.current
			m.current = nil
			// The frames of the panic are still on the stack.
			m.invoker.escalate(&Panic{Reason: reason, Stack: debug.Stack()}, x)
		}
	}()
	for {
		switch m.next() {
		case idle:
			return false
		case spent:
			m.dispatch.Schedule(m.resume)
			return false
		case systemNext:
			m.invokeSystem(m.current)
		case userNext:
			m.invoker.InvokeUserMessage(m.current)
		}
	}
}

// turn says how a runner goes on.
type turn uint8

const (
	idle       turn = iota // nothing to do: the runner is no longer the runner
	spent                  // there is more, but not in this turn
	systemNext             // a system message was taken
	userNext               // a user message was taken
)

// next takes the current message, a system message first. It runs after each message, so it
// defers nothing.
func (m *Mailbox) next() (t turn) {
	m.mu.Lock()
	m.current = nil
	system := m.system.waiting() > 0
	switch {
	case !system && (m.suspended || m.user.waiting() == 0):
		m.running = false
		t = idle
	case m.left <= 0:
		t = spent
	case system:
		m.current, t = m.system.take(), systemNext
	default:
		m.current, t = m.user.take(), userNext
	}
	m.left--
	m.mu.Unlock()
	return t
}

// invokeSystem delivers a system message, or heeds it itself.
func (m *Mailbox) invokeSystem(x any) {
	switch x.(type) {
	case *actor.SuspendMailbox:
		m.suspend(!m.invoker.dead)
	case *actor.ResumeMailbox:
		m.suspend(false)
	default:
		m.invoker.InvokeSystemMessage(x)
		if m.invoker.dead && m.suspended {
			// An actor that was stopped for its failure is never resumed; what waits
			// for it is aborted.
			m.suspend(false)
		}
	}
}

func (m *Mailbox) suspend(on bool) {
	m.mu.Lock()
	m.suspended = on
	m.mu.Unlock()
}

// mustBeMessage panics for what no actor can receive.
func mustBeMessage(x any) {
	if x == nil {
		panic("mailbox: a nil message was sent")
	}
	if e, ok := x.(*actor.MessageEnvelope); ok && e.Message == nil {
		panic("mailbox: an envelope without a message was sent")
	}
}
