package offloader

import (
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestOrderAgainstSorting compares the order with a sorted list while pages are added
// and removed anywhere, with queues and without.
func TestOrderAgainstSorting(t *testing.T) {
	for name, withQueues := range map[string]bool{"heap": false, "queues": true} {
		t.Run(name, func(t *testing.T) { compareWithSorting(t, withQueues) })
	}
}

func compareWithSorting(t *testing.T, withQueues bool) {
	r := rand.New(rand.NewPCG(3, 4))
	pages := make([]hostPage, 100)
	for i := range pages {
		pages[i].heapIndex = -1
	}
	var o order
	if withQueues {
		o.queues.links = newLinks(pages)
	}
	inQueues := 0
	in := map[messages.PageID]bool{}
	for range 2000 {
		p := messages.PageID(r.IntN(len(pages)))
		if in[p] {
			o.remove(pages, p)
			delete(in, p)
		} else {
			pages[p].state = sole
			pages[p].priority = messages.Priority(r.IntN(4))
			pages[p].age = r.Uint64N(6)
			pages[p].depth = r.Int32N(6)
			pages[p].block = protocol.BlockID(r.Int32N(3))
			o.push(pages, p)
			in[p] = true
		}
		require.Equal(t, firstBySorting(pages, in), o.first())
		for p := range in {
			if pages[p].heapIndex == queued {
				inQueues++
			}
		}
		for i, p := range o.heap {
			if int(pages[p].heapIndex) != i || i > 0 && displacedBefore(pages, p, o.heap[(i-1)/2]) {
				t.Fatalf("page %d at %d", p, i)
			}
		}
	}
	require.Equal(t, withQueues, inQueues > 0)
}

// firstBySorting sorts the pages by the rule, word for word.
func firstBySorting(pages []hostPage, in map[messages.PageID]bool) messages.PageID {
	var list []messages.PageID
	for p := range in {
		list = append(list, p)
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	sort.SliceStable(list, func(i, j int) bool { return pages[list[i]].block < pages[list[j]].block })
	sort.SliceStable(list, func(i, j int) bool { return pages[list[i]].age < pages[list[j]].age })
	sort.SliceStable(list, func(i, j int) bool { return pages[list[i]].depth > pages[list[j]].depth })
	sort.SliceStable(list, func(i, j int) bool { return pages[list[i]].age/2 < pages[list[j]].age/2 })
	sort.SliceStable(list, func(i, j int) bool { return pages[list[i]].priority < pages[list[j]].priority })
	if len(list) == 0 {
		return messages.NoPage
	}
	return list[0]
}
