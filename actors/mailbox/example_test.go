package mailbox_test

import (
	"fmt"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// double is a request record: input, answer, and the channel, of capacity 1, that
// tells when the answer is there.
type double struct {
	n      int
	result int
	err    error
	done   chan struct{}
}

// Abort answers when the actor cannot.
func (d *double) Abort(err error) {
	d.err = err
	d.done <- struct{}{}
}

// An actor that runs on its senders, and a record that is used again and again.
func ExampleInline() {
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer system.Shutdown()
	worker := mailbox.NewWorker()
	defer worker.Close()
	pid := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if d, ok := c.Message().(*double); ok {
			if d.n < 0 {
				panic("too small")
			}
			d.result = 2 * d.n
			d.done <- struct{}{} // last: from here on the record is the requester's
		}
	}, mailbox.Inline(worker)...))

	d := &double{done: make(chan struct{}, 1)}
	for _, n := range []int{4, -1, 21} {
		d.n, d.err = n, nil
		system.Root.Send(pid, d)
		<-d.done
		if d.err != nil {
			fmt.Println(d.n, d.err)
			continue
		}
		fmt.Println(d.n, d.result)
	}
	// Output:
	// 4 8
	// -1 the actor panicked: too small
	// 21 42
}

// The same program, one message at a time in an order that the seed decides.
func ExampleScheduler() {
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer system.Shutdown()
	scheduler := mailbox.NewScheduler(1)
	for _, name := range []string{"tree", "pool"} {
		pid := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			if n, ok := c.Message().(int); ok {
				fmt.Println(name, n)
			}
		}, mailbox.Queued(scheduler)...))
		system.Root.Send(pid, 1)
		system.Root.Send(pid, 2)
	}
	fmt.Println("nothing has run yet")
	fmt.Println(scheduler.Drain(), "messages, two of them the library's Started")
	// Output:
	// nothing has run yet
	// pool 1
	// tree 1
	// pool 2
	// tree 2
	// 6 messages, two of them the library's Started
}
