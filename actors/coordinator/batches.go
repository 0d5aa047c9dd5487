package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// poolBatches are the operations that go to the pools, one message for each pool
// that has some. The records are reused from round to round.
type poolBatches struct {
	*shared
	work []protocol.PoolWork // by pool
	// observe is called with each answer of a pool, before the counts change.
	observe func(p int, work *protocol.PoolWork)
}

// reset empties the batches; their answers are gone then.
func (b *poolBatches) reset() {
	for p := range b.work {
		b.work[p].Ops = b.work[p].Ops[:0]
	}
}

// add queues an operation for a pool and gives its index. What an earlier
// operation at this index answered in Shares gives its array to this one.
func (b *poolBatches) add(pool int, op protocol.PoolOp) int {
	// Operations of one message are done in the order in which they were added: claims before
	// takes, drops after the takes that must not have their pages.
	w := &b.work[pool]
	n := len(w.Ops)
	if n < cap(w.Ops) {
		op.Shares = w.Ops[:n+1][n].Shares[:0]
	}
	w.Ops = append(w.Ops, op)
	return n
}

// op is an operation that was added, answered after received.
func (b *poolBatches) op(pool, index int) *protocol.PoolOp { return &b.work[pool].Ops[index] }

// ops are all operations of a pool.
func (b *poolBatches) ops(pool int) []protocol.PoolOp { return b.work[pool].Ops }

// send sends every pool that has operations its batch.
func (b *poolBatches) send() {
	for p := range b.work {
		w := &b.work[p]
		// Also for pools that are not asked: the offloader has answered about their last victims.
		w.Victims = w.Victims[:0]
		if len(w.Ops) == 0 {
			continue
		}
		w.Epoch, w.Now = b.kernel.epoch, b.kernel.now
		b.kernel.toPool(messages.PoolID(p), w)
	}
}

// received takes over the counts that the pools have answered.
func (b *poolBatches) received() {
	for p := range b.work {
		if len(b.work[p].Ops) > 0 {
			b.observe(p, &b.work[p])
			b.counts.device[p] = b.work[p].Counts
		}
	}
}

// drop adds the end of one reference to each page of consecutive blocks of a
// sequence, the first at index from. What the sequence took itself is covered by
// its reserve as long as that lasts.
func (b *poolBatches) drop(
	s *sequence.Sequence, p int, pages []messages.PageID, from sequence.BlockIndex,
) {
	// The usual case: no reserve, and one operation for the table.
	if !s.Covered(p) {
		b.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: s.Use})
		return
	}
	// Pages that were reused had other holders, or none, before the sequence; those that it
	// took itself are covered. The pool drops the last pages first, so they go first, too.
	covered := s.CoveredFrom(from, len(pages))
	if covered < len(pages) {
		b.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages[covered:], Use: s.Use,
			CoveredByReservation: true})
	}
	if covered > 0 {
		b.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages[:covered], Use: s.Use})
	}
}

// claimBeams adds a reference of every beam but the first to the pages.
func (b *poolBatches) claimBeams(p int, pages []messages.PageID, beams int) {
	// The first beam's references are those of the sequence itself.
	for range beams - 1 {
		b.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
	}
}

// moveBatch is the work that goes to the offloader in one message.
//
// Victims are lent from the records of the pools, which are not sent again before the offloader
// has answered.
type moveBatch struct {
	*shared
	record protocol.Move
	// sent: the record is on its way. After a failure it tells what the offloader has done if it
	// has served it.
	sent bool
}

// reset empties the batch.
func (m *moveBatch) reset() {
	r := &m.record
	// The stamp tells the offloader which clean copies are of one age.
	r.Epoch, r.Stamp = m.kernel.epoch, m.kernel.stamp
	r.Effects, r.Marks, r.Queries = r.Effects[:0], r.Marks[:0], r.Queries[:0]
	for p := range r.Pools {
		q := &r.Pools[p]
		// Victims and what belongs to them are lent from the records of the pools, which keep their
		// arrays.
		q.Victims, q.Pieces, q.Ranking = nil, nil, nil
		q.Outcomes, q.Copies, q.Onboards = q.Outcomes[:0], q.Copies[:0], q.Onboards[:0]
		q.Pins, q.Unpins, q.Touches = q.Pins[:0], q.Unpins[:0], q.Touches[:0]
	}
}

// pool is the part of one pool.
func (m *moveBatch) pool(p int) *protocol.PoolMove { return &m.record.Pools[p] }

// copy adds a copy of the leading tokens of a page.
func (m *moveBatch) copy(p int, c protocol.PageCopy) {
	q := m.pool(p)
	q.Copies = append(q.Copies, c)
}

// copyFailed tells whether the device has refused the copy to a page.
func (m *moveBatch) copyFailed(p int, to messages.PageID) bool {
	return slices.ContainsFunc(m.pool(p).Copies,
		func(c protocol.PageCopy) bool { return c.Failed && c.To == to })
}

// onboard adds a copy from host memory.
func (m *moveBatch) onboard(p int, o protocol.Onboard) {
	q := m.pool(p)
	q.Onboards = append(q.Onboards, o)
}

// ask adds a question about the pages of the first pools, of which pages says what is read and what
// is written, and gives its index.
func (m *moveBatch) ask(pools int, pages func(p int) (read, write []messages.PageID)) int {
	index := len(m.record.Queries)
	q := lengthen(&m.record.Queries)
	q.Read, q.Write, q.Tickets = q.Read[:0], q.Write[:0], q.Tickets[:0]
	for p := range pools {
		read, write := pages(p)
		q.Read, q.Write = append(q.Read, read), append(q.Write, write)
	}
	return index
}

// tickets are the answer to a question.
func (m *moveBatch) tickets(query int) []messages.Ticket { return m.record.Queries[query].Tickets }

// victims begins a batch with what the pools have evicted, before any copy: the pages that victims
// leave are what copies write to.
func (m *moveBatch) victims(b *poolBatches) {
	m.reset()
	for p := range b.work {
		w := &b.work[p]
		if len(w.Ops) > 0 {
			q := m.pool(p)
			q.Victims, q.Pieces, q.Ranking = w.Victims, w.Pieces, w.Ranking
		}
	}
}

// effect passes an effect of the tree on if the pool has host memory.
func (m *moveBatch) effect(e *protocol.Effect) {
	if m.counts.hasHost(int(e.Pool)) {
		m.record.Effects = append(m.record.Effects, *e)
	}
}

// mark tells that a kernel of the host reads pages, or writes them, until the
// ticket has passed. The pages are read when the offloader gets the message, so a caller that
// changes the table before passes a copy of it.
func (m *moveBatch) mark(p int, pages []messages.PageID, write bool, after messages.Ticket) {
	m.record.Marks = append(m.record.Marks, protocol.Mark{Pool: messages.PoolID(p), Pages: pages,
		Write: write, Ticket: after})
}

// markRead tells that kernels of the host may still read pages that a sequence
// drops: its kernels read all that their tokens attend to.
func (m *moveBatch) markRead(s *sequence.Sequence, p int, pages []messages.PageID) {
	// Without a ticket the host waits for its kernels itself, before it drops anything.
	if after := s.After; !after.IsZero() && len(pages) > 0 {
		m.mark(p, pages, false, after)
	}
}

// markWritten tells that a kernel of the host writes the pages of a sequence in some pools, from
// block first on, until the ticket has passed. Kernels may write every page behind what is
// committed: a kernel that computes drafts writes tokens that a later commit accepts.
func (m *moveBatch) markWritten(
	s *sequence.Sequence, pools poolRange, first int, after messages.Ticket,
) {
	for p := pools.first; p < pools.end; p++ {
		for _, table := range s.Tables(p) {
			m.mark(p, table[min(first, len(table)):], true, after)
		}
	}
}

// markUsed tells that kernels of the host use the pages of a table until the ticket has passed.
// No kernel writes to blocks that are computed to their end; it may write to the others.
func (m *moveBatch) markUsed(
	s *sequence.Sequence, p int, table []messages.PageID, after messages.Ticket,
) {
	written := len(table) - len(s.Uncomputed(p, table))
	m.mark(p, table[:written], false, after)
	m.mark(p, table[written:], true, after)
}

// send sends the batch.
func (m *moveBatch) send() {
	m.sent = true
	m.kernel.toOffloader(&m.record)
}

// received takes over the counts that the offloader has answered.
func (m *moveBatch) received() {
	m.sent = false
	copy(m.counts.host, m.record.Counts)
}

// lengthen makes a list longer by one element and returns it: as it was left when the list
// was that long before, so that its arrays can be used again, or else zero.
func lengthen[T any](list *[]T) *T {
	*list = resized(*list, len(*list)+1)
	return &(*list)[len(*list)-1]
}

// resized is a list with n elements, those that its array had before where it had some: their own
// arrays can be used again.
func resized[T any](list []T, n int) []T {
	return slices.Grow(list, max(0, n-len(list)))[:n]
}
