package group

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
)

// Adopt makes a stream of the group of streams of the ranks, one of each in order: such
// as streams of the host application that a backend has taken in (cuda.Device.External).
// Its tickets come from Fence. DestroyStream destroys the streams of the ranks.
func (d *Device) Adopt(name string, on ...gpu.Stream) (gpu.Stream, error) {
	if err := d.ending(); err != nil {
		return 0, err
	}
	if len(on) != len(d.members) {
		return 0, fmt.Errorf("group: stream %s: %d streams for %d ranks", name, len(on), len(d.members))
	}
	for r, m := range d.members {
		// A stream that the rank does not have is refused now and not in the middle of a fan-out.
		if _, err := m.Fence(on[r]); err != nil {
			return 0, d.refused(r, err)
		}
	}
	return d.newStream(name, slices.Clone(on), true)
}

// StreamOf is a stream of the group on one rank.
func (d *Device) StreamOf(rank int, s gpu.Stream) (gpu.Stream, error) {
	st, err := d.find(s)
	if err != nil {
		return 0, err
	}
	return st.on[rank], nil
}

// Join makes a ticket of the group that has passed when a ticket of each rank has: such
// as those of events of the host application (cuda.Device.ExternalEvent). Tickets of Join
// pass in the order of the calls: they are on a stream of their own.
func (d *Device) Join(tickets ...gpu.Ticket) (gpu.Ticket, error) {
	if len(tickets) != len(d.members) {
		return gpu.Ticket{}, fmt.Errorf("group: %d tickets for %d ranks", len(tickets), len(d.members))
	}
	s, err := d.joinStream()
	if err != nil {
		return gpu.Ticket{}, err
	}
	// The order of the stream is held over wait and fence, so that no other join's wait comes
	// between the two.
	st, err := d.lockStream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer st.order.Unlock()
	for r, m := range d.members {
		// After a refusal the ranks before it wait for more than they need on this stream, which
		// delays later joins and nothing else.
		if err := m.Wait(st.on[r], tickets[r]); err != nil {
			return gpu.Ticket{}, d.refused(r, err)
		}
		t, err := m.Fence(st.on[r])
		if err != nil {
			return gpu.Ticket{}, d.refused(r, err)
		}
		st.seqs[r] = t.Seq
	}
	return d.ticket(s, st), nil
}

// joinStream is the stream of Join, made at its first call.
func (d *Device) joinStream() (gpu.Stream, error) {
	// Two first calls at a time must not make two streams; the lock is that of rare changes,
	// since mu is never held while members make a stream.
	d.changes.Lock()
	defer d.changes.Unlock()
	d.mu.Lock()
	s := d.joins
	d.mu.Unlock()
	if s != 0 {
		return s, nil
	}
	s, err := d.NewStream("joined tickets")
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joins = s
	return s, nil
}
