package group

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvactor/kvactor/gpu"
)

// stream is a stream of the group: one of each rank, and the tickets of the ranks that
// its own tickets stand for.
type stream struct {
	name string
	on   []gpu.Stream // by rank
	// adopted: the streams of the ranks were there before, and may be streams of the host
	// application, which it has perhaps destroyed by now.
	adopted bool

	// order is held while something is queued on all ranks: no other goroutine comes in
	// between, so all ranks have the same order. It is taken before Device.mu. What is
	// below, up to the tickets, belongs to whoever holds it.
	order   sync.Mutex
	gone    bool
	batches []gpu.Batch // by rank, reused
	seqs    []uint64    // by rank, of the call at hand

	tickets tickets // under Device.mu
}

// newStream makes a stream of the group of one of each rank, and gives it a number.
func (d *Device) newStream(name string, on []gpu.Stream, adopted bool) (gpu.Stream, error) {
	n := len(d.members)
	st := &stream{
		name: name, on: on, adopted: adopted, batches: make([]gpu.Batch, n), seqs: make([]uint64, n),
		tickets: newTickets(n),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The stream is complete by now: other goroutines can find it as soon as it has a number.
	id, ok := d.streams.Add(st)
	if !ok {
		return 0, fmt.Errorf("group: stream %s: there are %d streams already", name, gpu.MaxStreams)
	}
	return id, nil
}

// NewStream makes a stream on each rank.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	if err := d.ending(); err != nil {
		return 0, err
	}
	// The numbers of the streams differ between ranks if a rank had streams before.
	on := make([]gpu.Stream, 0, len(d.members))
	undo := func() {
		for r, s := range on {
			_ = d.members[r].DestroyStream(s) // it is new: nothing is queued on it
		}
	}
	for r, m := range d.members {
		s, err := m.NewStream(name)
		if err != nil {
			undo()
			return 0, d.refused(r, err)
		}
		on = append(on, s)
	}
	id, err := d.newStream(name, on, false)
	if err != nil {
		// All places of the group are taken.
		undo()
	}
	return id, err
}

// DestroyStream gives the stream back on each rank. A group that has ended gives back
// those of the ranks that still answer.
func (d *Device) DestroyStream(s gpu.Stream) error {
	ended := d.ending()
	if errors.Is(ended, gpu.ErrClosed) {
		return ended
	}
	st, err := d.find(s)
	if err != nil {
		return errors.Join(ended, err)
	}
	st.order.Lock()
	defer st.order.Unlock()
	// Streams of the application are not asked: it may have destroyed them already.
	if ended == nil && !st.adopted {
		// Asked of all ranks first: a stream that one rank keeps is kept by all.
		if err := d.unused(st); err != nil {
			return err
		}
	}
	// The reason why the group has ended comes first, then what the ranks refuse.
	problems := []error{ended}
	for r, m := range d.members {
		// A dead rank answers only errors, so it is not asked.
		if d.dead[r].Load() {
			continue
		}
		if err := m.DestroyStream(st.on[r]); err != nil {
			problems = append(problems, d.fail(r, err))
		}
	}
	// A goroutine that waits for its turn on the stream finds it gone.
	st.gone = true
	d.mu.Lock()
	defer d.mu.Unlock()
	// From now on its tickets have passed, as those of any destroyed stream.
	d.streams.Remove(s)
	if d.joins == s {
		d.joins = 0
	}
	return errors.Join(problems...)
}

// unused refuses a stream with work under way on one of the ranks.
func (d *Device) unused(st *stream) error {
	for r, m := range d.members {
		last, err := m.Fence(st.on[r])
		if err != nil {
			return d.refused(r, err)
		}
		// The ranks would ask the same of themselves, one after the other, and the first would
		// have destroyed its stream when a later one refuses.
		if !m.Done(last) {
			return d.named(r, fmt.Errorf("stream %s: destroyed while ticket %d is under way: %w", st.name,
				last.Seq, gpu.ErrInUse))
		}
	}
	return nil
}

// find returns a live stream, also of a group that has ended.
func (d *Device) find(s gpu.Stream) (*stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Find(s)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	return st, nil
}

// lockStream returns a live stream whose order the caller holds from now on; it ends with
// st.order.Unlock.
func (d *Device) lockStream(s gpu.Stream) (*stream, error) {
	if err := d.ending(); err != nil {
		return nil, err
	}
	st, err := d.find(s)
	if err != nil {
		return nil, err
	}
	st.order.Lock()
	// Another goroutine may have destroyed the stream, or ended the group, while this one
	// waited for its turn.
	err = d.ending()
	if err == nil && st.gone {
		err = fmt.Errorf("group: stream %d was destroyed", s)
	}
	if err != nil {
		st.order.Unlock()
		return nil, err
	}
	return st, nil
}

// Fence returns the point after all that was queued on the stream so far, on all ranks.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	st, err := d.lockStream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer st.order.Unlock()
	for r, m := range d.members {
		t, err := m.Fence(st.on[r])
		if err != nil {
			// The ranks before have fences that nothing refers to, which does no harm.
			return gpu.Ticket{}, d.refused(r, err)
		}
		st.seqs[r] = t.Seq
	}
	// If nothing was queued since the last ticket, the ranks have answered with theirs, and so
	// does the group: a host that fences an idle stream adds no ticket.
	return d.ticket(s, st), nil
}

// Wait makes what is queued on the stream later wait for the tickets, each rank for its
// own part of them. If a rank refuses, those before it wait for more than they need,
// which does no harm.
func (d *Device) Wait(s gpu.Stream, waits ...gpu.Ticket) error {
	st, err := d.lockStream(s)
	if err != nil {
		return err
	}
	defer st.order.Unlock()
	// Nothing is told to any rank before all tickets are known to be tickets.
	if err := d.translateWaits(st, waits); err != nil {
		return err
	}
	for r, m := range d.members {
		if err := m.Wait(st.on[r], st.batches[r].Waits...); err != nil {
			return d.refused(r, err)
		}
	}
	return nil
}
