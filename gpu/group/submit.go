package group

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
)

// Submit queues a batch on all ranks. A copy that one rank refuses counts as refused on
// all: ranks that are asked later get only the copies before it, and of ranks that were
// asked earlier Submit waits until they have done what they have taken.
func (d *Device) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	st, err := d.lockStream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer st.order.Unlock()
	if err := d.prepare(st, b); err != nil {
		return gpu.Ticket{}, err
	}
	refused, err := d.fanOut(st, b)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if refused == nil {
		return d.ticket(s, st), nil
	}
	// The caller may use the destinations of the refused copies again when Submit returns, so no rank
	// may still write to them: all that ranks have taken of the batch is waited for.
	if err := d.drain(st.on, st.seqs); err != nil {
		return gpu.Ticket{}, err
	}
	// All that any rank has taken is over, so there is nothing for a ticket to cover.
	if refused.Index == 0 {
		return gpu.Ticket{}, refused
	}
	return d.ticket(s, st), refused
}

// prepare makes the batch of each rank: its own waits, and the copies with its numbers
// of the pools.
func (d *Device) prepare(st *stream, b *gpu.Batch) error {
	if err := d.translateWaits(st, b.Waits); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range st.batches {
		rb := &st.batches[r]
		rb.Label = b.Label
		// A pool that there is not becomes one that no rank has, which the first rank refuses.
		rb.Copies = append(rb.Copies[:0], b.Copies...)
		for i := range rb.Copies {
			c := &rb.Copies[i]
			c.Src.Pool, c.Dst.Pool = d.poolOn(r, c.Src.Pool), d.poolOn(r, c.Dst.Pool)
		}
		// Zero stands for a rank that has not been asked: drain does not wait for it.
		st.seqs[r] = 0
	}
	return nil
}

// fanOut submits to one rank after the other. It returns the copy that was refused, if
// one was; with an error the batch was not taken at all, or the group has ended.
func (d *Device) fanOut(st *stream, b *gpu.Batch) (refused *gpu.CopyError, err error) {
	n := len(b.Copies)
	for r, m := range d.members {
		rb := &st.batches[r]
		// What an earlier rank has refused, and all behind it, is not asked of this one.
		rb.Copies = rb.Copies[:n]
		t, err := m.Submit(st.on[r], rb)
		st.seqs[r] = t.Seq
		if err == nil {
			continue
		}
		var failed *gpu.CopyError
		if !errors.As(err, &failed) || terminal(err) {
			return nil, d.diverged(st, r, err)
		}
		// Of copies of which a rank has queued a part the ticket covers that part.
		n = failed.Index
		refused = &gpu.CopyError{Index: n, Copy: b.Copies[n], Err: d.named(r, failed.Err)}
		if n == 0 {
			break
		}
	}
	return refused, nil
}

// diverged is the error of a call that a rank refuses as a whole. If ranks before it have
// taken the call, the ranks are not in the same state any more: that ends the group, when
// those that have taken it have done it. If none has, nothing has changed.
func (d *Device) diverged(st *stream, rank int, err error) error {
	if rank == 0 && st.seqs[0] == 0 {
		return d.refused(rank, err)
	}
	ended := d.fail(rank, err)
	_ = d.drain(st.on, st.seqs) // the group has ended already
	return ended
}

// Launch queues a kernel in Go on all ranks. It runs once on each, which RunRank is
// told; the memory that it sees is that of the rank.
func (d *Device) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	if d.launchers == nil {
		return gpu.Ticket{}, fmt.Errorf("group: %s devices do not run kernels in Go", d.info.Backend)
	}
	st, err := d.lockStream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer st.order.Unlock()
	if err := d.prepare(st, &gpu.Batch{Label: k.Label, Waits: k.Waits}); err != nil {
		return gpu.Ticket{}, err
	}
	for r, l := range d.launchers {
		t, err := l.Launch(st.on[r], d.kernelOf(st, r, &k))
		if err != nil {
			// A kernel cannot be refused in part.
			return gpu.Ticket{}, d.diverged(st, r, err)
		}
		st.seqs[r] = t.Seq
	}
	return d.ticket(s, st), nil
}

// kernelOf is a kernel as one rank runs it.
func (d *Device) kernelOf(st *stream, rank int, k *gpu.Kernel) gpu.Kernel {
	own := gpu.Kernel{
		Label: k.Label, Waits: st.batches[rank].Waits, Nanos: k.Nanos,
		Reads: d.accesses(rank, k.Reads), Writes: d.accesses(rank, k.Writes),
	}
	// Kept apart from k, which would have to be on the heap otherwise.
	run, each := k.Run, k.RunRank
	// A kernel without a function has its duration and its accesses, and computes nothing.
	if run == nil && each == nil {
		return own
	}
	own.Run = func(bytes gpu.PageBytes) {
		// The kernel asks by the numbers of the group.
		of := func(s gpu.Slot) []byte { return bytes(d.slotOn(rank, s)) }
		if each != nil {
			each(rank, of)
			return
		}
		run(of)
	}
	return own
}

// accesses are those of a kernel with the pool numbers of a rank.
func (d *Device) accesses(rank int, list []gpu.Access) []gpu.Access {
	// A copy, because the caller's list keeps the numbers of the group: those of the next rank are
	// made of them.
	own := slices.Clone(list)
	for i := range own {
		own[i].Slot = d.slotOn(rank, own[i].Slot)
	}
	return own
}

// slotOn is a slot with the pool number of a rank.
func (d *Device) slotOn(rank int, s gpu.Slot) gpu.Slot {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Pool = d.poolOn(rank, s.Pool)
	return s
}
