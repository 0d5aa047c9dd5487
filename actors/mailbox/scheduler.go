package mailbox

import (
	"math/rand/v2"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Scheduler is a dispatcher for simulations: it runs nothing by itself. It
// collects the actors that have something to do; each Step picks one of them
// and has it receive one message. With the same choices and the same program
// the run is the same. Actors take part with Queued(scheduler).
//
// A future of the library and a call of the engine block their waiter: in a program
// of one goroutine, run Until the answer is there before waiting for it.
type Scheduler struct {
	mu       sync.Mutex
	runnable []func()
	choose   func(n int) int
}

var _ actor.Dispatcher = (*Scheduler)(nil)

// NewScheduler makes a scheduler whose choices follow from the seed.
func NewScheduler(seed uint64) *Scheduler {
	return NewChoosingScheduler(rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)).IntN)
}

// NewChoosingScheduler makes a scheduler that asks choose which of the n ≥ 1
// runnable actors is next, for tests that draw or search the order themselves.
func NewChoosingScheduler(choose func(n int) int) *Scheduler {
	return &Scheduler{choose: choose}
}

// Schedule notes a turn.
func (s *Scheduler) Schedule(turn func()) {
	s.mu.Lock()
	s.runnable = append(s.runnable, turn)
	s.mu.Unlock()
}

// Throughput is one message.
func (s *Scheduler) Throughput() int { return 1 }

// Runnable is the number of actors that have something to do.
func (s *Scheduler) Runnable() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runnable)
}

// Step has one actor receive one message. It is false when none has one.
func (s *Scheduler) Step() bool {
	s.mu.Lock()
	n := len(s.runnable)
	if n == 0 {
		s.mu.Unlock()
		return false
	}
	i := s.choose(n)
	turn := s.runnable[i]
	s.runnable[i] = s.runnable[n-1]
	s.runnable[n-1] = nil
	s.runnable = s.runnable[:n-1]
	s.mu.Unlock()
	turn()
	return true
}

// Drain steps until nothing is left to do and counts the steps. Actors that
// send to each other without end keep it going without end.
func (s *Scheduler) Drain() (steps int) {
	for s.Step() {
		steps++
	}
	return steps
}

// Until steps until done says so; it is false when nothing is left to do before.
func (s *Scheduler) Until(done func() bool) bool {
	for !done() {
		if !s.Step() {
			return false
		}
	}
	return true
}
