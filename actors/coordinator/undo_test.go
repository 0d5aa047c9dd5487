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
	c := New(Config{Pools: []windows.Pool{{Name: "w4h1", Window: 4}}, Counts: []windows.Counts{{Primary: 4}}, TokensPerBlock: 4}, nil)
	s := c.sequences.open(1)
	s.tokens[0] = make([]messages.Token, 9)
	s.pools[0].tables[0] = []messages.PageID{0, 1}
	it := c.addStep(s, &messages.StepResult{})
	it.extended, it.request = true, &messages.AppendStep{Tokens: make([]messages.Token, 1)}
	it.pools[0].copies = append(it.pools[0].copies, rewrite{block: 1, from: 1, to: 2})
	s.pools[0].tables[0] = []messages.PageID{0, 2, 3}
	sent := s.pools[0].tables[0][:2]

	c.undoAppend()

	assert.Equal(t, []messages.PageID{0, 1}, s.pools[0].tables[0])
	assert.Equal(t, []messages.PageID{0, 2}, sent)
}
