package actors

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// workers are the goroutines that run the actors of an engine: the first for what is
// beyond the budgets of the callers, and one for each actor that has its own. Spawn makes the
// first, the engine's actor the others when it starts; they are closed when it has stopped.
type workers struct{ list []*mailbox.Worker }

// props are those of one more actor. Inline actors share the first worker; with own the
// actor has a worker and runs nowhere else.
func (w *workers) props(own bool, options ...mailbox.Option) []actor.PropsOption {
	if own || len(w.list) == 0 {
		w.list = append(w.list, mailbox.NewWorker())
	}
	if own {
		return mailbox.Queued(w.list[len(w.list)-1], options...)
	}
	return mailbox.Inline(w.list[0], options...)
}

// close ends the goroutines when their actors have stopped.
func (w *workers) close() {
	for _, worker := range w.list {
		worker.Close()
	}
}

// background is what runs beside the actors because it may take long, such as waits for
// the device.
type background struct {
	ctx    context.Context // ends with the engine
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// schedule runs a task in its turn instead of on a goroutine, in simulations.
	schedule func(task func())
}

func (b *background) init() { b.ctx, b.cancel = context.WithCancel(context.Background()) }

// run starts a task. ctx ends with the engine, so that no task outlasts it.
func (b *background) run(task func(ctx context.Context)) {
	if b.schedule != nil {
		b.schedule(func() { task(b.ctx) })
		return
	}
	b.tasks.Go(func() { task(b.ctx) })
}

// end waits for the tasks to end, which their context tells to. No actor that starts
// any may run any more.
func (b *background) end() {
	b.cancel()
	b.tasks.Wait()
}

// hostPanic is a panic of a function that the host has given the engine.
type hostPanic struct {
	function string
	reason   any
	stack    []byte
}

func (p *hostPanic) Error() string {
	return fmt.Sprintf("kvactor: the host's function for %s panicked: %v\n\n%s", p.function, p.reason,
		p.stack)
}

// rethrow ends the program with a panic: nothing recovers it on a goroutine of its
// own. Tests replace it.
var rethrow = func(p *hostPanic) { go func() { panic(p) }() }

// callHost calls a function of the host. Its panic is no failure of the actor that
// calls it: the actor's state is whole, and no restart would help. It ends the
// program, as it would on a goroutine of the host.
func (e *Engine) callHost(function string, f func()) {
	defer func() {
		if reason := recover(); reason != nil {
			p := &hostPanic{function: function, reason: reason, stack: debug.Stack()}
			e.log.Error("kvactor: a function of the host panicked", "engine", e.settings.Name,
				"function", function, "reason", reason, "stack", string(p.stack))
			rethrow(p)
		}
	}()
	f()
}
