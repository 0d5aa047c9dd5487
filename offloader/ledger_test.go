package offloader

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func at(stream messages.StreamID, seq uint64) messages.Ticket {
	return messages.Ticket{Stream: stream, Seq: seq}
}

func smallConfig() Config {
	return Config{Pools: []PoolConfig{{
		Name: "wfullh1", HostPages: 4, PageBytes: 64,
		Regions: []windows.Region{{Runs: 4, TokenBytes: 4}}, TokensPerBlock: 4,
	}}}
}

// readsOf lists the reads of a slot.
func readsOf(l *ledger, s Slot) []messages.Ticket { return l.slot(s).reads }

// inUse counts the records that are in use.
func (l *ledger) inUse() int { return len(l.of) }

func TestLedgerKeepsTheNewestReadOfEachStream(t *testing.T) {
	l := newLedger(nil)
	s := Slot{0, messages.Primary, 3}
	for _, r := range []messages.Ticket{at(1, 4), at(2, 1), at(3, 1), at(4, 7), at(1, 2), at(3, 9),
		at(4, 3), at(5, 1)} {
		l.read(s, r)
	}
	require.ElementsMatch(t, []messages.Ticket{at(1, 4), at(2, 1), at(3, 9), at(4, 7), at(5, 1)},
		readsOf(&l, s))
	require.Empty(t, l.check())

	l.write(s, at(2, 5))
	require.Empty(t, readsOf(&l, s))
	require.Equal(t, at(2, 5), l.slot(s).written)
	require.Empty(t, l.check())
}

func TestMarkOfAWrite(t *testing.T) {
	l := newLedger(nil)
	s := Slot{0, messages.Primary, 0}
	l.markWrite(s, at(7, 5))
	l.read(s, at(1, 3))
	l.read(s, at(7, 6))
	l.markWrite(s, at(7, 4))
	require.Equal(t, at(7, 5), l.slot(s).written, "an older one of the same stream says nothing new")
	require.ElementsMatch(t, []messages.Ticket{at(1, 3), at(7, 6)}, readsOf(&l, s),
		"the read comes after the write")
	l.markWrite(s, at(7, 8))
	require.Equal(t, at(7, 8), l.slot(s).written)
	require.Equal(t, []messages.Ticket{at(1, 3)}, readsOf(&l, s),
		"reads of other streams are unknown to the kernel")
	l.markWrite(s, at(8, 1))
	require.Equal(t, at(8, 1), l.slot(s).written)
	require.ElementsMatch(t, []messages.Ticket{at(1, 3), at(7, 8)}, readsOf(&l, s),
		"nor is it known whether the kernel waited for another stream's write")
	require.True(t, l.slot(s).mixed)
	l.write(s, at(1, 9))
	require.False(t, l.slot(s).mixed, "a transfer waits for all of them")
}

// The ledger's reads against a map.
func TestLedgerAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := newLedger(nil)
	type reads map[messages.StreamID]uint64
	model := map[messages.PageID]reads{}
	for range 5000 {
		p := messages.PageID(r.IntN(8))
		s := Slot{0, messages.Primary, p}
		ticket := at(messages.StreamID(1+r.IntN(6)), r.Uint64N(100))
		if r.IntN(8) == 0 {
			l.write(s, ticket)
			model[p] = reads{}
		} else {
			l.read(s, ticket)
			if model[p] == nil {
				model[p] = reads{}
			}
			model[p][ticket.Stream] = max(model[p][ticket.Stream], ticket.Seq)
		}
		var want []messages.Ticket
		for stream, seq := range model[p] {
			want = append(want, at(stream, seq))
		}
		require.ElementsMatch(t, want, readsOf(&l, s))
	}
	require.Empty(t, l.check())
}

func TestReadyAsksOnlyWhatHasNotPassed(t *testing.T) {
	cfg := smallConfig()
	done := uint64(0)
	cfg.Passed = func(t messages.Ticket) bool { return t.Seq <= done }
	o := New(cfg)
	ready := func(read, write []messages.PageID, marks ...protocol.Mark) []messages.Ticket {
		m := &protocol.Move{Marks: marks, Queries: []protocol.WaitQuery{{
			Read: [][]messages.PageID{read}, Write: [][]messages.PageID{write},
		}}}
		o.Begin(m)
		require.Nil(t, o.Next())
		o.Finish()
		return m.Queries[0].Tickets
	}
	one, two := []messages.PageID{1, messages.NoPage}, []messages.PageID{messages.NoPage, 2}
	require.Empty(t, ready(one, two))
	require.Equal(t, []messages.Ticket{at(5, 1)}, ready(one, nil,
		protocol.Mark{Pages: one, Write: true, Ticket: at(5, 1)}))
	require.Empty(t, ready(nil, two), "another page")
	require.Empty(t, ready(two, nil, protocol.Mark{Pages: two, Ticket: at(6, 2)}),
		"a read waits for no read")
	require.Equal(t, []messages.Ticket{at(6, 2)}, ready(nil, two))
	require.Equal(t, []messages.Ticket{at(6, 2)}, ready(nil, two,
		protocol.Mark{Pages: two, Write: true}), "a kernel without a ticket is over")
	done = 1
	require.Empty(t, ready(one, one))
	require.Equal(t, []messages.Ticket{at(6, 2)}, ready(nil, two))
	done = 2
	require.Empty(t, ready(one, two))
}

// TestLedgerForgetsWhatHasPassed: there are records for what is under way, and a
// few more, however many pages were used before.
func TestLedgerForgetsWhatHasPassed(t *testing.T) {
	const pages = 10_000
	done := uint64(0)
	l := newLedger(func(t messages.Ticket) bool { return t.Seq <= done })
	most := 0
	for step := range uint64(2 * pages) {
		l.begin()
		done = max(done, step) - min(step, 50) // the last fifty are under way
		s := Slot{0, messages.Primary, messages.PageID(step * 7919 % pages)}
		for stream := range messages.StreamID(1 + step%5) {
			l.read(s, at(1+stream, step))
		}
		if step%3 == 0 {
			l.write(s, at(9, step))
		}
		most = max(most, l.inUse())
		if step%1000 == 0 {
			require.Empty(t, l.check())
		}
	}
	require.Less(t, most, 400)
	last := Slot{0, messages.Primary, messages.PageID((2*pages - 1) * 7919 % pages)}
	require.NotEmpty(t, readsOf(&l, last), "what is under way is known")
}

// TestLedgerKeepsWhatIsUnderWay, and what the work under way has asked for.
func TestLedgerKeepsWhatIsUnderWay(t *testing.T) {
	done := uint64(0)
	l := newLedger(func(t messages.Ticket) bool { return t.Seq <= done })
	slot := func(p messages.PageID) Slot { return Slot{0, messages.Primary, p} }
	l.begin()
	l.write(slot(0), at(1, 5))
	asked := l.slot(slot(1)) // nothing is known of it yet
	for p := range messages.PageID(8) {
		l.slot(slot(p))
	}
	require.Same(t, asked, l.slot(slot(1)), "of this work")
	l.write(slot(7), at(2, 9))
	done, l.sweepAt = 4, 0
	l.begin()
	require.Equal(t, at(1, 5), l.look(slot(0)).written, "under way")
	require.Equal(t, 2, l.inUse())
	done, l.sweepAt = 9, 0
	l.begin()
	require.Zero(t, l.inUse())
	require.Equal(t, &nothing, l.look(slot(0)))
	require.Empty(t, l.check())
}

// TestMarksOfPassedKernels: a kernel that has passed leaves no record, and one that has not is
// asked about once for each work, however many pages and marks it has.
func TestMarksOfPassedKernels(t *testing.T) {
	cfg := smallConfig()
	done, asked := uint64(4), 0
	cfg.Passed = func(t messages.Ticket) bool { asked++; return t.Seq <= done }
	o := New(cfg)
	pages := []messages.PageID{0, 1, messages.NoPage, 2}
	marks := func(seq uint64) *protocol.Move {
		return &protocol.Move{Pools: make([]protocol.PoolMove, 1), Marks: []protocol.Mark{
			{Pages: pages, Ticket: at(7, seq)}, {Pages: pages, Write: true, Ticket: at(7, seq)},
		}}
	}
	work := func(m *protocol.Move) {
		o.Begin(m)
		require.Nil(t, o.Next())
		o.Finish()
	}
	work(marks(4))
	require.Zero(t, o.ledger.inUse(), "nothing is under way")
	require.Equal(t, 1, asked)

	work(marks(5))
	require.Equal(t, 3, o.ledger.inUse())
	require.Equal(t, 2, asked)
	m := marks(5)
	m.Queries = []protocol.WaitQuery{{Read: [][]messages.PageID{{1}}}}
	done = 5
	work(m)
	require.Empty(t, m.Queries[0].Tickets)

}

// Records are used again once they have been swept: writes by one kernel after the other allocate
// nothing.
func TestRecordsAreUsedAgain(t *testing.T) {
	l := newLedger(func(messages.Ticket) bool { return true })
	n := uint64(0)
	round := func() {
		l.begin()
		for range 100 {
			n++
			l.markWrite(Slot{Tier: messages.Primary, Page: messages.PageID(n % 1000)},
				messages.Ticket{Stream: 1, Seq: n})
		}
	}
	for range 100 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(100, round))
}
