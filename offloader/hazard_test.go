package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// stream count of the tests' device: four lanes, then the host's.
const (
	laneStreams = 4
	allStreams  = 8
)

// clock is what an operation is ordered after, by stream.
type clock [allStreams + 1]uint64

func (c *clock) join(d *clock) {
	for i := range c {
		c[i] = max(c[i], d[i])
	}
}

// span is a part of a slot.
type span struct {
	slot     Slot
	from, to int64
}

func (s span) overlaps(t span) bool { return s.slot == t.slot && s.from < t.to && t.from < s.to }

// access is one operation on a slot.
type access struct {
	at    messages.Ticket
	label string
	write bool
}

// machine is a device as one would draw it on a whiteboard: it keeps every
// operation's clock and every access of every slot, for ever, and compares each new
// access with all before it. Contents follow the order of submission, which
// is the order of the bytes as long as no hazard is found.
type machine struct {
	clocks   [allStreams + 1][]clock // of operation i+1 of the stream
	accesses map[Slot][]access
	contents map[Slot]int // what a slot holds; 0 is garbage
	hazards  []string
	passed   clock // what the host has seen done
}

func newMachine() *machine {
	return &machine{accesses: map[Slot][]access{}, contents: map[Slot]int{}}
}

// operate queues one operation and gives its ticket.
func (m *machine) operate(
	stream messages.StreamID, label string, waits []messages.Ticket, reads, writes []Slot,
) messages.Ticket {
	done := m.clocks[stream]
	c := m.passed // what the host saw done before it submitted comes before
	if len(done) > 0 {
		c.join(&done[len(done)-1])
	}
	for _, w := range waits {
		if int(w.Seq) > len(m.clocks[w.Stream]) {
			m.hazards = append(m.hazards, fmt.Sprintf("%s waits for s%d:%d, which was never submitted",
				label, w.Stream, w.Seq))
			continue
		}
		c.join(&m.clocks[w.Stream][w.Seq-1])
	}
	t := messages.Ticket{Stream: stream, Seq: uint64(len(done) + 1)}
	for _, s := range reads {
		m.access(s, access{t, label, false}, &c)
	}
	for _, s := range writes {
		m.access(s, access{t, label, true}, &c)
	}
	c[stream] = t.Seq
	m.clocks[stream] = append(done, c)
	return t
}

// access compares one access with all before it.
func (m *machine) access(s Slot, a access, c *clock) {
	for _, b := range m.accesses[s] {
		if (a.write || b.write) && b.at != a.at && c[b.at.Stream] < b.at.Seq {
			m.hazards = append(m.hazards, fmt.Sprintf("%s: %s at %s is not ordered after %s at %s",
				s, a.label, point(a.at), b.label, point(b.at)))
		}
	}
	m.accesses[s] = append(m.accesses[s], a)
}

// singly breaks runs up into pages; of gives the copy that each was in.
func singly(copies []Copy) (pages []Copy, of []int) {
	for i, c := range copies {
		n := max(1, c.Pages)
		c.Bytes, c.Pages = c.Bytes/int64(n), 0
		for range n {
			pages, of = append(pages, c), append(of, i)
			c.Src.Page++
			c.Dst.Page++
		}
	}
	return pages, of
}

// submit queues the first n pages of a submission.
func (m *machine) submit(s *Submission, n int, pageBytes int64) messages.Ticket {
	if n == 0 {
		return messages.Ticket{}
	}
	var reads, writes []Slot
	pages, _ := singly(s.Copies)
	for _, c := range pages[:n] {
		writes = append(writes, c.Dst)
		m.contents[c.Dst] = 0
		if c.Zero {
			continue
		}
		reads = append(reads, c.Src)
		if c.Bytes == pageBytes {
			m.contents[c.Dst] = m.contents[c.Src]
		}
	}
	return m.operate(messages.StreamID(s.Lane)+1, s.Lane.String(), s.Waits, reads, writes)
}

// legal tells what is wrong with a submission as such.
func legal(s *Submission, sliceBytes, pageBytes int64) error {
	var bytes int64
	pages := map[Slot]bool{}
	copies, _ := singly(s.Copies)
	for i, c := range copies {
		src := span{c.Src, c.SrcOffset, c.SrcOffset + c.Bytes}
		dst := span{c.Dst, c.DstOffset, c.DstOffset + c.Bytes}
		bytes += c.Bytes
		pages[c.Dst] = true
		if c.Bytes <= 0 || src.from < 0 || dst.from < 0 || src.to > pageBytes || dst.to > pageBytes {
			return fmt.Errorf("copy %d leaves its page: %+v", i, c)
		}
		if want := laneOf(c); want != s.Lane && !(want == Onboard && s.Lane == Bulk) {
			return fmt.Errorf("copy %d belongs on %s, not %s", i, want, s.Lane)
		}
		for j, d := range copies {
			other := span{d.Dst, d.DstOffset, d.DstOffset + d.Bytes}
			if other.overlaps(src) && !c.Zero || j != i && other.overlaps(dst) {
				return fmt.Errorf("copies %d and %d overlap: %+v %+v", i, j, c, d)
			}
		}
	}
	if bytes > sliceBytes && len(pages) > 1 {
		return fmt.Errorf("%d bytes in one slice", bytes)
	}
	return oneEach(s.Waits)
}

// oneEach tells whether tickets name a stream twice, or none.
func oneEach(tickets []messages.Ticket) error {
	seen := map[messages.StreamID]bool{0: true}
	for _, t := range tickets {
		if seen[t.Stream] {
			return fmt.Errorf("tickets %v", tickets)
		}
		seen[t.Stream] = true
	}
	return nil
}

func laneOf(c Copy) Lane {
	switch {
	case c.Dst.Tier == messages.Secondary:
		return Offload
	case c.Src.Tier == messages.Secondary:
		return Onboard
	default:
		return Duplicate
	}
}
