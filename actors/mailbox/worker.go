package mailbox

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Worker is one long-lived goroutine that runs actors. Its stack has grown once
// and stays so, which is what makes it several times faster than a goroutine
// for each wake-up. It implements actor.Dispatcher. Its queue holds each actor
// at most once, so it cannot outgrow their number.
type Worker struct {
	mu     sync.Mutex
	wake   sync.Cond
	posted []func()
	closed bool
	done   chan struct{}
}

var _ actor.Dispatcher = (*Worker)(nil)

// NewWorker starts a worker. Close ends it.
func NewWorker() *Worker {
	w := &Worker{done: make(chan struct{})}
	w.wake.L = &w.mu
	go w.work()
	return w
}

// Schedule queues a turn. After Close the turn gets a goroutine of its own, which is
// slow, so that an accepted message is received or aborted.
func (w *Worker) Schedule(turn func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		go turn()
		return
	}
	w.posted = append(w.posted, turn)
	w.mu.Unlock()
	w.wake.Signal()
}

// Throughput is how many messages an actor may receive in one turn, so that a
// busy actor does not keep the others waiting.
func (w *Worker) Throughput() int { return DefaultBudget }

// Close runs what is queued, ends the goroutine and waits for it. It may be
// called more than once, but not from an actor that runs on the worker.
func (w *Worker) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wake.Signal()
	<-w.done
}

func (w *Worker) work() {
	defer close(w.done)
	var batch []func()
	for {
		w.mu.Lock()
		for len(w.posted) == 0 && !w.closed {
			w.wake.Wait()
		}
		if len(w.posted) == 0 {
			w.mu.Unlock()
			return
		}
		batch, w.posted = w.posted, batch[:0]
		w.mu.Unlock()
		for i, turn := range batch {
			batch[i] = nil
			turn()
		}
	}
}
