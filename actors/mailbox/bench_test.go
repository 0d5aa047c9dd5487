package mailbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// kinds are the ways to run an actor that the benchmarks compare; library is
// the default mailbox on the default dispatcher.
var kinds = []string{"inline", "worker", "library"}

// optionsOf gives the options of a kind; the worker ends with the benchmark.
func optionsOf(tb testing.TB, kind string) []actor.PropsOption {
	if kind == "library" {
		return nil
	}
	worker := mailbox.NewWorker()
	tb.Cleanup(worker.Close)
	if kind == "worker" {
		return mailbox.Queued(worker)
	}
	return mailbox.Inline(worker)
}

// answer finishes what it receives.
func answer(c actor.Context) {
	if r, ok := c.Message().(*request); ok {
		r.served++
		r.slot.Finish()
	}
}

// call is one request and its answer through the slot.
func call(tb testing.TB, system *actor.ActorSystem, pid *actor.PID, r *request) {
	r.slot.Reset()
	system.Root.Send(pid, r)
	if err := r.slot.Wait(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkHop is one request and its answer.
func BenchmarkHop(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			system := newSystem(b)
			pid := spawn(b, system, answer, optionsOf(b, kind)...)
			r := &request{}
			b.ReportAllocs()
			for b.Loop() {
				call(b, system, pid, r)
			}
		})
	}
	b.Run("direct post", func(b *testing.B) {
		system := newSystem(b)
		m := mailbox.Of(system, spawn(b, system, answer, optionsOf(b, "inline")...))
		r := &request{}
		b.ReportAllocs()
		for b.Loop() {
			r.slot.Reset()
			m.PostUserMessage(r)
			if err := r.slot.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library future", func(b *testing.B) {
		system := newSystem(b)
		pid := spawn(b, system, func(c actor.Context) {
			if _, ok := c.Message().(*request); ok {
				c.Respond(c.Message())
			}
		})
		r := &request{}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := system.Root.RequestFuture(pid, r, -1).Result(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkChain is a request that goes through three actors.
func BenchmarkChain(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			system := newSystem(b)
			options := optionsOf(b, kind)
			last := spawn(b, system, answer, options...)
			middle := spawn(b, system, forward(last), options...)
			first := spawn(b, system, forward(middle), options...)
			r := &request{}
			b.ReportAllocs()
			for b.Loop() {
				call(b, system, first, r)
			}
		})
	}
}

// BenchmarkRound is the shape of the engine: a coordinator asks the tree, the
// tree sends the record back, the coordinator answers the host.
func BenchmarkRound(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			system := newSystem(b)
			coordinator := spawnRound(b, system, optionsOf(b, kind)...)
			r := &request{}
			b.ReportAllocs()
			for b.Loop() {
				call(b, system, coordinator, r)
			}
		})
	}
}

// BenchmarkCallers is one actor with many closed-loop callers.
func BenchmarkCallers(b *testing.B) {
	for _, kind := range kinds {
		for _, callers := range []int{8, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, callers), func(b *testing.B) {
				system := newSystem(b)
				pid := spawn(b, system, answer, optionsOf(b, kind)...)
				b.SetParallelism(callers)
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					r := &request{}
					for p.Next() {
						call(b, system, pid, r)
					}
				})
			})
		}
	}
}

// forward passes requests on.
func forward(to *actor.PID) func(actor.Context) {
	return func(c actor.Context) {
		if r, ok := c.Message().(*request); ok {
			c.Send(to, r)
		}
	}
}

// lookup is the record that the coordinator of spawnRound sends to its tree.
type lookup struct {
	from    *actor.PID
	request *request
}

func spawnRound(tb testing.TB, system *actor.ActorSystem, options ...actor.PropsOption) *actor.PID {
	tree := spawn(tb, system, func(c actor.Context) {
		if l, ok := c.Message().(*lookup); ok {
			c.Send(l.from, l)
		}
	}, options...)
	record := &lookup{}
	return spawn(tb, system, func(c actor.Context) {
		switch x := c.Message().(type) {
		case *request:
			record.from, record.request = c.Self(), x
			c.Send(tree, record)
		case *lookup:
			x.request.slot.Finish()
		}
	}, options...)
}
