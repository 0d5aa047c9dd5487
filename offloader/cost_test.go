package offloader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// shuttle is a Move that evicts n pages to host memory and brings the n blocks
// of the time before back, so that it can be repeated for ever.
type shuttle struct {
	o    *Offloader
	n    int
	turn int
	seq  uint64
	use  protocol.Use
	move protocol.Move
}

func newShuttle(n int) *shuttle {
	s := &shuttle{n: n, o: New(Config{Pools: []PoolConfig{{
		Name: "wfullh8", HostPages: 2 * n, PageBytes: 1 << 20,
		Regions: []windows.Region{{Runs: 128, TokenBytes: 256}}, TokensPerBlock: 32,
	}}})}
	s.move.Pools = make([]protocol.PoolMove, 1)
	s.move.Queries = []protocol.WaitQuery{{Read: make([][]messages.PageID, 1),
		Write: make([][]messages.PageID, 1)}}
	s.move.Marks = make([]protocol.Mark, 1)
	return s
}

func (s *shuttle) step() {
	m, pm, r := &s.move, &s.move.Pools[0], &s.move.Queries[0]
	out, in := s.turn%2, (s.turn+1)%2 // halves of the blocks
	s.use++
	m.Stamp++
	pm.Victims, pm.Onboards, pm.Copies = pm.Victims[:0], pm.Onboards[:0], pm.Copies[:0]
	r.Read[0], r.Write[0] = r.Read[0][:0], r.Write[0][:0]
	for i := range s.n {
		page := messages.PageID(i)
		pm.Victims = append(pm.Victims, protocol.Victim{
			Page: page, Block: protocol.BlockID(out*s.n + i), Depth: int32(i), Priority: 35, Use: s.use,
		})
		if s.turn > 0 {
			pm.Onboards = append(pm.Onboards, protocol.Onboard{Block: protocol.BlockID(in*s.n + i), To: page,
				Free: true})
		}
		r.Read[0], r.Write[0] = append(r.Read[0], page), append(r.Write[0], page)
	}
	last := messages.PageID(2*s.n - 1)
	pm.Copies = append(pm.Copies, protocol.PageCopy{From: protocol.OnDevice(0), To: last, Tokens: 7})
	m.Marks[0] = protocol.Mark{Pages: r.Read[0], Write: true, Ticket: at(9, s.seq)}
	s.o.Begin(m)
	carry(s.o, &s.seq)
	s.turn++
}

func TestAWarmMoveAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("Check allocates")
	}
	s := newShuttle(64)
	for range 8 {
		s.step()
	}
	require.Zero(t, testing.AllocsPerRun(100, s.step))
	require.NoError(t, s.o.Check())
}

// BenchmarkMove is 512 pages out, 512 in, one partial copy, and the tickets of
// 512 pages to write: the cost of one page of each.
func BenchmarkMove(b *testing.B) {
	const pages = 512
	s := newShuttle(pages)
	b.ReportAllocs()
	for b.Loop() {
		s.step()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pages, "ns/page")
}
