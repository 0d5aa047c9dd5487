package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// What a step has sent to a pool may be read only after a recovery has taken the
// step back: the pages in it must stay those that were sent.
func TestUndoneStepsLeaveSentPagesAlone(t *testing.T) {
	c := New(Config{Pools: []windows.Pool{{Name: "w4h1", Window: 4, TokensPerBlock: 4}}, Counts: []windows.Counts{{Primary: 4}}, TokensPerBlock: 4}, nil)
	s := c.sequences.Open(1)
	s.Extend(make([]messages.Token, 9))
	s.SetTable(0, []messages.PageID{0, 1})
	it := c.extension.batch.add(s, &messages.StepResult{})
	it.extended, it.request = true, &messages.AppendStep{Tokens: make([]messages.Token, 1)}
	it.pools[0].copies = append(it.pools[0].copies, pageRewrite{block: 1, from: 1, to: 2})
	s.SetTable(0, []messages.PageID{0, 2, 3})
	sent := s.Table(0)[:2]

	assert.Equal(t, serveAgain, c.extension.undo(false))

	assert.Equal(t, []messages.PageID{0, 1}, s.Table(0))
	assert.Equal(t, []messages.PageID{0, 2}, sent)
}
