// Command actor is a host that is an actor. It owns an engine, sends it records, and
// tells the answers apart by their tags. It fails once: before it is restarted it closes
// the engine, whose memory the next engine needs.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// server is the host.
type server struct {
	device gpu.Device
	fails  bool // until it has been restarted
	engine *kvactor.Engine
	done   chan struct{}
}

// Receive gets the messages of the actor library, and records that come back.
func (s *server) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.open(ctx)
		prompt := messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3, 4, 5}}
		ctx.Request(s.engine.Actors().PID(), &messages.Admit{
			Tag: "chat 7", Requests: []messages.AdmitRequest{prompt},
		})
	case *actor.Restarting, *actor.Stopping:
		_, err := s.engine.Close(context.Background()) // serves what was accepted
		check(err)
		fmt.Println("closed")
	case *messages.Admit: // the same record, answered
		in := m.Results[0]
		fmt.Println(m.Tag, "admitted with page table", in.Tables[0][0], in.Err)
		if s.fails {
			s.fails = false
			panic("a bug of the host")
		}
		ctx.Request(s.engine.Actors().PID(), &messages.Release{
			Tag: m.Tag, Steps: []messages.ReleaseStep{{Sequence: in.Sequence}},
		})
	case *messages.Release:
		fmt.Println(m.Tag, "released", m.Results[0].Err)
		close(s.done)
	case *messages.Aborted: // not served; the record is in Request
		fmt.Println("not served:", m.Err)
	}
}

// open starts an engine as a child of the actor.
func (s *server) open(ctx actor.Context) {
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 4096,
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	config := kvactor.Config{Model: model, Cache: cache, Device: s.device, Parent: ctx}
	engine, err := kvactor.Open(config)
	check(err)
	s.engine = engine
	stats, err := engine.Stats(context.Background())
	check(err)
	fmt.Println("opened with", stats.Pools[0].Primary.Total, "pages")
}

func main() {
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	system := actors.NewSystem(nil)
	s := &server{device: device, fails: true, done: make(chan struct{})}
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return s }))
	<-s.done
	check(system.Root.StopFuture(pid).Wait())
	system.Shutdown()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
