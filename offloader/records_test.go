package offloader

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// TestNumbersAgainstMap: chunks come and go with the records in them, and those
// that are gone come back.
func TestNumbersAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var n recordNumbers
	n.grow(100)
	model := map[messages.PageID]int32{}
	most := 0
	for step := range 20_000 {
		if step == 10_000 {
			n.grow(1000)
		}
		pages := 100
		if step >= 10_000 {
			pages = 1000
		}
		p := messages.PageID(r.IntN(pages))
		require.Equal(t, model[p], n.get(p))
		if model[p] != 0 {
			n.end(p)
			delete(model, p)
		} else if len(model) < 1+step/1000 {
			model[p] = int32(step + 1)
			n.set(p, model[p])
		}
		require.Equal(t, model[p], n.get(p))
		chunks := map[uint32]bool{}
		for p := range model {
			chunks[uint32(p)/recordChunkPages] = true
		}
		made := 0
		for _, c := range n.chunks {
			if c != nil {
				made++
			}
		}
		require.Len(t, chunks, made, "where a page has a record, and only there")
		most = max(most, made)
		require.LessOrEqual(t, made+len(n.unused), most)
	}
	n.grow(10)
	require.Len(t, n.chunks, 16, "pages that go keep their places")
}
