package bench

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// ring is a message that goes round; each actor counts it and passes it on
// until the laps are done.
type ring struct{ hops, left int }

// BenchmarkHop is a message from one actor to the next: two actors pass it to
// and fro. The floor does by hand what cannot be left out: take a lock, see
// that the receiver is idle, call it through an interface, and put it back.
func BenchmarkHop(b *testing.B) {
	const laps = 1000
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	worker := mailbox.NewWorker()
	b.Cleanup(func() { system.Shutdown(); worker.Close() })
	var boxes [2]*mailbox.Mailbox
	for i := range boxes {
		props := actor.PropsFromFunc(func(c actor.Context) {
			if m, ok := c.Message().(*ring); ok {
				m.hops++
				if m.left--; m.left > 0 {
					boxes[1-i].PostUserMessage(m)
				}
			}
		}, mailbox.Inline(worker)...)
		boxes[i] = mailbox.Of(system, system.Root.Spawn(props))
	}
	message, sent := &ring{}, 0
	peers := [2]idler{&idle{}, &idle{}}
	calls := &ring{}
	c := versus(b, batched(laps, func() {
		message.left = 2
		boxes[0].PostUserMessage(message)
		sent += 2
	}), batched(laps, func() {
		calls.left = 2
		peers[0].post(calls, peers[1])
	}))
	require.Eventually(b, func() bool { return message.hops == sent }, eventually, poll)
	b.ReportMetric(c.engine.quantile(0.5)/2, "hop-ns")
}

// idler is an actor's mailbox at its barest.
type idler interface{ post(m *ring, to idler) }

type idle struct {
	mu      sync.Mutex
	running bool
}

func (i *idle) post(m *ring, to idler) {
	i.mu.Lock()
	i.running = true
	i.mu.Unlock()
	m.hops++
	if m.left--; m.left > 0 {
		to.post(m, i)
	}
	i.mu.Lock()
	i.running = false
	i.mu.Unlock()
}
