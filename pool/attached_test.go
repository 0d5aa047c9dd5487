package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestAttached lists used and cached pages alike.
func TestAttached(t *testing.T) {
	p := full(t, 4)
	p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
		{Kind: protocol.Take, N: 1}, // page 3
		{Kind: protocol.Claim, Pages: []messages.PageID{1}},
		{Kind: protocol.DetachPages, Pages: []messages.PageID{2}},
	}})
	assert.Equal(t, []protocol.PageBlock{{Page: 0, Block: 0}, {Page: 1, Block: 1}}, p.Attached())
}
