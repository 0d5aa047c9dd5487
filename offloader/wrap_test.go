package offloader

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The numbers of works and batches do not come back to those of records that were never marked.
func TestNumbersGoOn(t *testing.T) {
	o := filled(smallConfig(), 2)
	o.number, o.batchNo = math.MaxUint32, math.MaxUint32
	m := &protocol.Move{Stamp: 9,
		Pools: []protocol.PoolMove{{Onboards: []protocol.Onboard{{Block: 0, To: 4}}}}}
	o.Begin(m)
	for s := o.Next(); s != nil; s = o.Next() {
		o.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: 77}, -1)
	}
	o.Finish()
	require.False(t, m.Pools[0].Onboards[0].Failed)
}
