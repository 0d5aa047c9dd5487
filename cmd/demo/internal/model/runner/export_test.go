package runner

import (
	"context"
	"errors"
	"io"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/windows"
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
			Label: "change a state", Nanos: kernelNanos, Waits: s.cached.Ready(),
			Writes: []gpu.Access{{Slot: slot}},
			Run:    func(bytes gpu.PageBytes) { change(bytes(slot)) },
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

// Export is Send by a stream that can be kept.
func (r *Runner) Export(ctx context.Context, s *Sequence, w io.Writer) (*kvactor.Exported, error) {
	return r.Engine.Export(ctx, s.cached, w)
}

// Import is Receive from what Export has written.
func (r *Runner) Import(ctx context.Context, from io.Reader) (*Sequence, *kvactor.Imported, error) {
	in, err := r.Engine.Import(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	return r.received(in), in, nil
}

// ByteInUse is the place in a page of a byte whose second-highest bit the next step uses: of
// the first key of a block, or of a state.
func (r *Runner) ByteInUse(pool, pageBytes int) int {
	switch {
	case r.isState(pool):
		return pageBytes - 2
	case r.pools[pool].DType == windows.Float32:
		return 3 // the exponent
	}
	return 0
}

// Row is row.
type Row = row

// RewindOne is Rewind of one sequence.
func (r *Runner) RewindOne(ctx context.Context, s *Sequence, n int) error {
	errs, err := r.Rewind(ctx, []*Sequence{s}, []int{n})
	return errors.Join(append(errs, err)...)
}
