package sim

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
)

// onPurpose is in the reason of every panic that a run asks for itself.
const onPurpose = "simulated panic"

// faultyDevice panics in a Submit when it is told to, as a driver with a bug
// would: the offloader is in the middle of a change then.
type faultyDevice struct {
	*check.Device
	lit bool
}

// Submit passes the batch on.
func (d *faultyDevice) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	if d.lit {
		d.lit = false
		panic("device: " + onPurpose)
	}
	return d.Device.Submit(s, b)
}

// clock is the time by which retentions end.
type clock struct{ now time.Duration }

func (c *clock) read() time.Duration { return c.now }

// watched is the run that is told of panics.
var watched atomic.Pointer[world]

// system is the actor system of the process; its log is where panics show.
var system = actor.NewActorSystem(
	actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(panicLog{}) }),
	actor.WithDeadLetterThrottleInterval(time.Millisecond),
)

// panicLog is a log that keeps panics no one asked for.
type panicLog struct{}

// Enabled takes all records.
func (panicLog) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs changes nothing.
func (l panicLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup changes nothing.
func (l panicLog) WithGroup(string) slog.Handler { return l }

// Handle tells the run of a panic; the stack is still that of the panic.
func (panicLog) Handle(_ context.Context, r slog.Record) error {
	w := watched.Load()
	if w == nil || !strings.Contains(r.Message, "Recovering") {
		return nil
	}
	reason := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			reason = a.Value.String()
		}
		return true
	})
	w.panicked(reason, frames(debug.Stack()))
	return nil
}

// frames keeps the functions of our own on a stack, the innermost few.
func frames(stack []byte) string {
	const enough = 6
	var own []string
	_, after, _ := strings.Cut(string(stack), "\npanic(")
	for _, line := range strings.Split(after, "\n") {
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "/kvactor/") ||
			strings.HasPrefix(line, "\t") && strings.Contains(line, ".go:") &&
				!strings.Contains(line, "/usr/") && !strings.Contains(line, "/pkg/mod/") {
			own = append(own, strings.TrimSpace(line))
		}
		if len(own) == enough {
			break
		}
	}
	return strings.Join(own, "\n\t")
}
