package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Transfer makes the two Moves between which the caller submits the copies of a hand-over
// to a stream of its own. The first asks what the copies wait for; the second notes, for
// all who use the pages later, that the copies read or write them until a ticket has
// passed. The offloader treats such copies like kernels of the host: they change no state
// of a page, and staging memory is no memory of the engine.
func Transfer(m *protocol.CopyPages) (ask *protocol.Move, mark func(messages.Ticket) *protocol.Move) {
	pools := 0
	for i := range m.Copies {
		pools = max(pools, int(m.Copies[i].Pool)+1)
	}
	pages := make([][]messages.PageID, pools)
	for i := range m.Copies {
		c := &m.Copies[i]
		pages[c.Pool] = append(pages[c.Pool], c.Page)
	}
	q := protocol.WaitQuery{Read: pages}
	if m.In {
		q = protocol.WaitQuery{Write: pages}
	}
	ask = &protocol.Move{Header: m.Header, Queries: []protocol.WaitQuery{q}}
	return ask, func(over messages.Ticket) *protocol.Move {
		move := &protocol.Move{Header: m.Header}
		for p := range pages {
			move.Marks = append(move.Marks, protocol.Mark{Pool: messages.PoolID(p), Pages: pages[p], Write: m.In, Ticket: over})
		}
		return move
	}
}
