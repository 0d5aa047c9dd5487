package offloader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// lruPool is a pool without a forecast with pages of some priorities, in the order of their use.
func lruPool(quotas []windows.Quota, priorities ...messages.Priority) *hostPool {
	h := &hostPool{}
	h.init(PoolConfig{Name: "lru", HostPages: len(priorities) + 1}, quotas)
	for i, p := range priorities {
		h.decideOutcome(&protocol.Victim{Block: protocol.BlockID(i), Priority: p, Use: protocol.Use(2 * i)}, nil, 0)
	}
	return h
}

// TestPagesInOrderAreQueued: pages that come in order are in a queue each, with tenants as well, and in no heap.
func TestPagesInOrderAreQueued(t *testing.T) {
	for name, quotas := range map[string][]windows.Quota{"pool": nil, "tenants": {windows.NoQuota, windows.NoQuota / 2}} {
		t.Run(name, func(t *testing.T) {
			h := lruPool(quotas, 20, 35, 20, 35, 35)
			for p := range messages.PageID(5) {
				assert.EqualValues(t, queued, h.pages[p].heapIndex, "page %d", p)
			}
			assert.Empty(t, h.orderOf(0).heap)
			h.reprioritize(3, 20) // after page 2
			h.reprioritize(1, 20) // before it
			assert.EqualValues(t, queued, h.pages[3].heapIndex)
			assert.Equal(t, []messages.PageID{1}, h.orderOf(0).heap)
			require.Empty(t, h.check(false))
		})
	}
}

// TestCheckSeesDamageOfQueues: Check sees each kind of damage, and ends.
func TestCheckSeesDamageOfQueues(t *testing.T) {
	for name, harm := range map[string]func(h *hostPool, q *queues){
		"order":       func(h *hostPool, q *queues) { h.pages[2].age = 0 },
		"queue order": func(h *hostPool, q *queues) { q.list[0], q.list[1] = q.list[1], q.list[0] },
		"queue twice": func(h *hostPool, q *queues) {
			q.list = append(q.list, queue{35, pageList{messages.NoPage, messages.NoPage}})
		},
		"cycle":        func(h *hostPool, q *queues) { q.links.next[4] = 1 },
		"self":         func(h *hostPool, q *queues) { q.links.next[1] = 1 },
		"prev":         func(h *hostPool, q *queues) { q.links.setPrev(4, 0) },
		"tail":         func(h *hostPool, q *queues) { q.list[1].tail = 1 },
		"head":         func(h *hostPool, q *queues) { q.list[1].head = 2 },
		"lost":         func(h *hostPool, q *queues) { q.links.remove(&q.list[1].pageList, 2) },
		"both":         func(h *hostPool, q *queues) { h.orders[sole].heap = append(h.orders[sole].heap, 1) },
		"priority":     func(h *hostPool, q *queues) { h.pages[1].priority = 20 },
		"index":        func(h *hostPool, q *queues) { h.pages[1].heapIndex = 0 },
		"lost of heap": func(h *hostPool, q *queues) { q.remove(h.pages, 2); h.pages[2].heapIndex = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := lruPool(nil, 20, 35, 35, 20, 35)
			require.Empty(t, h.check(false))
			harm(h, &h.orders[sole].queues)
			assert.NotEmpty(t, h.check(false))
		})
	}
}
