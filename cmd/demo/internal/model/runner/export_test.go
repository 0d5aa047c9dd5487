package runner

import (
	"context"

	"github.com/kvactor/kvactor/gpu"
)

// ChangeState makes a kernel change the bytes of a sequence's working page: a fault
// for tests, in order with everything else.
func (r *Runner) ChangeState(ctx context.Context, s *Sequence, change func([]byte)) error {
	for p, table := range s.cached.Tables() {
		if !r.isState(p) {
			continue
		}
		slot := r.slot(p, table[0][0])
		ticket, err := r.launch.Launch(r.compute, gpu.Kernel{
			Label: "change a state", Nanos: kernelNanos, Waits: s.cached.Ready(), Writes: []gpu.Access{{Slot: slot}},
			Run: func(bytes gpu.PageBytes) { change(bytes(slot)) },
		})
		if err != nil {
			return err
		}
		if err := r.sync(ctx, ticket); err != nil {
			return err
		}
	}
	return nil
}
