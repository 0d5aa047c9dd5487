package actors

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// copyPages orders the copies of a hand-over behind what their pages wait for, and notes
// that they use the pages. The copies have streams of their own, so that a large hand-over
// holds up no offload and no onboard.
//
// Both are one message of the actor, so no other copy can be ordered between them. Without the
// note a page could be evicted and written while a copy still reads it.
func (a *offloaderActor) copyPages(m *protocol.CopyPages) {
	m.Ticket, m.Failed = a.streams.transfer(m, a.core.HandoverWaits(m))
	a.core.NoteHandover(m)
}

// transfer submits the copies of a hand-over. With failed the ticket is that of the copies
// which the device has taken, zero if it has taken none.
func (s *copyStreams) transfer(
	m *protocol.CopyPages, waits []messages.Ticket,
) (ticket messages.Ticket, failed bool) {
	stream := exportStream
	if m.In {
		stream = importStream
	}
	b := gpu.Batch{Label: streamNames[stream], Waits: waits}
	for _, c := range m.Copies {
		page := gpu.Slot{Pool: s.pools[c.Pool], Tier: messages.Primary, Page: c.Page}
		staged := gpu.Slot{Pool: gpu.Pool(m.Staging), Tier: messages.Secondary, Page: c.Slot}
		if m.In {
			page, staged = staged, page
		}
		b.Copies = append(b.Copies, gpu.Copy{Src: page, Dst: staged, Bytes: s.pageBytes[c.Pool]})
	}
	ticket, refused := s.submitTo(s.streams[stream], &b)
	return ticket, refused >= 0
}

// stagingPages bounds the pages that a hand-over has under way: two batches of so many
// pages, of which the device copies one while the other is on the wire.
const stagingPages = 64

// staging is the memory between the pages of an engine and a connection: host pages that
// the device can copy to and from, of a pool that the engine does not know. Its owner is
// the hand-over that uses it, on its caller's goroutine.
//
// Shares of all ranks have the same slot number, as those of a page have.
type staging struct {
	device gpu.Device
	pool   gpu.Pool
	ranks  int // shares of a page
	batch  int // pages of a batch; the pool has two batches
	// tickets are those of the last copies of each batch, which may be filled when they have passed.
	tickets [2]messages.Ticket
}

// newStaging takes staging memory of about so many bytes, for pages of at most pageBytes.
//
// The least is two pages, one for each batch, even where they take more than the bytes
// that the host allows: with one page nothing could overlap.
func newStaging(device gpu.Device, bytes, pageBytes int64) (*staging, error) {
	ranks := gpu.Ranks(device)
	batch := int(min(max(bytes/2/(pageBytes*int64(ranks)), 1), stagingPages))
	pool, err := device.CreatePool(gpu.PoolSpec{Name: "hand-over", PageBytes: pageBytes,
		HostPages: 2 * batch})
	if err != nil {
		return nil, fmt.Errorf("staging memory for a hand-over: %w", err)
	}
	return &staging{device: device, pool: pool, ranks: ranks, batch: batch}, nil
}

// slot is the page of a batch, 0 or 1.
func (s *staging) slot(batch, i int) messages.PageID { return messages.PageID(batch*s.batch + i) }

// share is the memory of one rank's share of a slot, as long as the page that is in it.
func (s *staging) share(rank int, slot messages.PageID, pageBytes int64) []byte {
	return gpu.HostShare(s.device, rank, s.pool, slot)[:pageBytes]
}

// read gives the bytes of the page in a slot, the shares of all ranks one behind the
// other: its memory if there is one share, else a copy.
//
// The memory is valid until the batch is copied to again. The copy of several shares costs
// one pass over the bytes, since a frame has one body.
func (s *staging) read(slot messages.PageID, pageBytes int64) []byte {
	if s.ranks == 1 {
		return s.share(0, slot, pageBytes)
	}
	page := make([]byte, 0, int64(s.ranks)*pageBytes)
	for rank := range s.ranks {
		page = append(page, s.share(rank, slot, pageBytes)...)
	}
	return page
}

// fill writes the bytes of a page, in the order of read, to a slot: write puts them into the
// memory that it gets.
func (s *staging) fill(slot messages.PageID, pageBytes int64, write func([]byte) error) error {
	if s.ranks == 1 {
		return write(s.share(0, slot, pageBytes))
	}
	page := make([]byte, int64(s.ranks)*pageBytes)
	if err := write(page); err != nil {
		return err
	}
	for rank := range s.ranks {
		copy(s.share(rank, slot, pageBytes), page[int64(rank)*pageBytes:])
	}
	return nil
}
