package actors

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/tree"
)

// BenchmarkHop is what a message between two actors of the engine costs: from a
// sender to the tree's shell and its answer back, the tree having nothing to do.
// One iteration is two hops.
func BenchmarkHop(b *testing.B) {
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
	worker := mailbox.NewWorker()
	answers := 0
	sink := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*protocol.Locate); ok {
			answers++
		}
	}, mailbox.Inline(worker)...))
	shell := &treeActor{core: tree.New(tree.Config{TokensPerBlock: 16, Pools: []tree.PoolShape{{}}})}
	shell.coordinator = mailbox.Of(system, sink)
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return shell },
		mailbox.Inline(worker)...))
	b.Cleanup(func() {
		_ = system.Root.StopFuture(pid).Wait()
		_ = system.Root.StopFuture(sink).Wait()
		worker.Close()
		system.Shutdown()
	})
	box, question := mailbox.Of(system, pid), &protocol.Locate{}
	b.ReportAllocs()
	for b.Loop() {
		box.PostUserMessage(question)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/hop")
	if answers < b.N {
		b.Fatalf("%d answers to %d questions", answers, b.N)
	}
}
