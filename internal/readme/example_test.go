package readme

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// openEngine starts an engine of one pool of eight pages on a device of its own.
func openEngine(system *actor.ActorSystem, list ...actors.Option) (*actors.Engine, *sim.Device) {
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	model := windows.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: windows.Float16, MaxSeqLen: 4096,
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	config := actors.Config{
		Model: model, Cache: cache, Pages: []windows.PageCounts{{Primary: 8}}, Device: device,
	}
	engine, err := actors.Spawn(system.Root, config, list...)
	check(err)
	return engine, device
}

func quietSystem() *actor.ActorSystem {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	})
	return actor.NewActorSystem(quiet)
}

// A host that is a goroutine with a compute stream of its own.
func Example_tickets() {
	system := quietSystem()
	defer system.Shutdown()
	engine, device := openEngine(system)
	ctx := context.Background()
	prompt := []messages.Token{1, 2, 3, 4, 5, 6}

	compute, err := device.NewStream("compute")
	check(err)
	in, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
	check(err)
	// Ready: nothing may touch the pages before. The stream waits, the program does not.
	prefill, err := device.Launch(compute, gpu.Kernel{
		Label: "prefill", Waits: in.Ready, Writes: accesses(engine, in.Tables),
	})
	check(err)
	// After: the tokens count as computed now; whoever reads them waits for the kernel on its stream.
	_, err = engine.Commit(ctx, []messages.CommitStep{
		{Sequence: in.Sequence, Computed: len(prompt), After: prefill},
	})
	check(err)

	// A decode step: pages for the sampled token, its kernel, then what is computed.
	step, err := engine.Append(ctx, []messages.AppendStep{
		{Sequence: in.Sequence, Tokens: []messages.Token{7}},
	})
	check(err)
	decode, err := device.Launch(compute, gpu.Kernel{
		Label: "decode", Waits: step[0].Ready, Reads: accesses(engine, in.Tables),
	})
	check(err)
	_, err = engine.Commit(ctx, []messages.CommitStep{
		{Sequence: in.Sequence, Computed: 7, After: decode},
	})
	check(err)

	// The kernels may still run: the release says until when they use the pages.
	_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence, After: decode}})
	check(err)
	leaked, err := engine.Close(ctx)
	fmt.Println("pages leaked:", leaked, err)
	// Output:
	// pages leaked: 0 <nil>
}

// accesses names the memory of the pages of a table.
func accesses(engine *actors.Engine, tables messages.Tables) []gpu.Access {
	var list []gpu.Access
	handles := engine.DevicePools()
	for pool, beams := range tables {
		for _, page := range beams[0] {
			if page != messages.NoPage {
				list = append(list, gpu.Access{
					Slot: gpu.Slot{Pool: handles[pool], Tier: messages.Primary, Page: page},
				})
			}
		}
	}
	return list
}

// Out of pages is an answer that a host acts on.
func Example_refusals() {
	system := quietSystem()
	defer system.Shutdown()
	engine, _ := openEngine(system)
	ctx := context.Background()
	prompt := make([]messages.Token, 40)

	_, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
	var refused *messages.Refusal
	switch {
	case errors.Is(err, messages.ErrOutOfPages) && errors.As(err, &refused):
		fmt.Println(refused.Pool, "lacks", refused.Need-refused.Available,
			"pages: wait, or release a sequence")
	case errors.Is(err, messages.ErrSequenceLost):
		fmt.Println("release it, then admit it again")
	case err != nil:
		fmt.Println(err)
	}
	_, err = engine.Close(ctx)
	check(err)
	// Output:
	// wfullh8 lacks 2 pages: wait, or release a sequence
}

// Every actor fails once. The host repeats the call that failed over it; the sequence goes on
// and its blocks are found again.
func Example_recovery() {
	system := quietSystem()
	defer system.Shutdown()
	points := &enginetest.Failpoints{}
	engine, _ := openEngine(system, enginetest.WithFailpoints(points))
	ctx := context.Background()
	prompt := []messages.Token{1, 2, 3, 4, 5, 6, 7, 8, 9}
	in, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
	check(err)
	_, err = engine.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: len(prompt)}})
	check(err)

	for _, name := range []string{"coordinator", "tree", "pool:wfullh8"} {
		check(points.Arm(name))
		again, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		if errors.Is(err, messages.ErrInternal) {
			again, err = engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		}
		check(err)
		fmt.Println(name, "failed,", again.ReusedTokens, "tokens reused")
		_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: again.Sequence}})
		check(err)
	}
	stats, err := engine.Stats(ctx)
	check(err)
	fmt.Println(stats.Restarts, "restarts, invariants:", engine.Check(ctx))
	leaked, err := engine.Close(ctx)
	fmt.Println("pages leaked:", leaked, err)
	// Output:
	// coordinator failed, 8 tokens reused
	// tree failed, 8 tokens reused
	// pool:wfullh8 failed, 8 tokens reused
	// 3 restarts, invariants: <nil>
	// pages leaked: 3 <nil>
}

// server is a host that is an actor.
type server struct {
	engine *actors.Engine
	done   chan struct{}
}

func (s *server) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		prompt := messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3, 4, 5}}
		ctx.Request(s.engine.PID(), &messages.Admit{Requests: []messages.AdmitRequest{prompt}})
	case *messages.Admit: // the same record, answered
		in := m.Results[0]
		fmt.Println("admitted with page table", in.Tables[0][0], in.Err)
		ctx.Request(s.engine.PID(), &messages.Release{
			Steps: []messages.ReleaseStep{{Sequence: in.Sequence}},
		})
	case *messages.Release:
		fmt.Println("released", m.Results[0].Err)
		close(s.done)
	case *messages.Aborted:
		fmt.Println("not served:", m.Err)
		close(s.done)
	}
}

func Example_actor() {
	system := quietSystem()
	defer system.Shutdown()
	engine, _ := openEngine(system)
	done := make(chan struct{})
	system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &server{engine, done} }))
	<-done
	_, err := engine.Close(context.Background())
	check(err)
	// Output:
	// admitted with page table [0 1] <nil>
	// released <nil>
}
