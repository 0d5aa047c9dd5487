package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pair is two trees with one pool each, which tell one log: 1 and 2.
type pair struct {
	t     *testing.T
	log   *Log
	trees [3]*forest
	held  [3]*block
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, log: NewShared(Config{Limit: 100}, 1), trees: [3]*forest{nil, {}, {}}}
	p.trees[2].changes.FirstPool = 1
	return p
}

// do tells of a tree what the letters say: s a block is stored, r it is removed,
// c the tree is empty.
func (p *pair) do(tree int, what string) {
	f := p.trees[tree]
	for _, c := range what {
		switch c {
		case 's':
			p.held[tree] = f.one(messages.Token(tree))
		case 'r':
			f.tell(protocol.Change{Kind: protocol.BlocksRemoved}, p.held[tree])
			f.leave(p.held[tree])
		case 'c':
			f.changes.List = append(f.changes.List, protocol.Change{Kind: protocol.EverythingForgot})
		}
	}
	f.log(p.log)
	require.NoError(p.t, p.log.Check())
}

func (p *pair) take() (kinds []messages.EventType) {
	for _, e := range take(p.t, p.log, FirstReader).Events {
		kinds = append(kinds, e.Type)
	}
	return kinds
}

// Two trees tell one log; cleared speaks for both.
func TestTwoTreesTellOneLog(t *testing.T) {
	type step struct {
		tree int
		what string
	}
	for name, c := range map[string]struct {
		steps   []step
		cleared int
	}{
		"both empty":           {[]step{{1, "c"}}, 1},
		"the other holds a":    {[]step{{2, "s"}, {1, "c"}}, 0},
		"the first holds a":    {[]step{{1, "s"}, {2, "c"}}, 0},
		"its own pools":        {[]step{{1, "src"}}, 1},
		"the other is empty":   {[]step{{2, "s"}, {1, "c"}, {2, "rc"}}, 1},
		"once for both":        {[]step{{1, "c"}, {2, "c"}}, 1},
		"twice, asked twice":   {[]step{{1, "c"}, {2, "c"}, {1, "c"}, {2, "c"}}, 2},
		"after something else": {[]step{{1, "c"}, {1, "sr"}, {2, "c"}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, m, cleared := newPair(t), NewMirror(), 0
			for _, s := range c.steps {
				p.do(s.tree, s.what)
			}
			batch := take(t, p.log, FirstReader)
			require.NoError(t, m.Follow(batch))
			for _, e := range batch.Events {
				if e.Type == messages.EventCleared {
					cleared++
					assert.Zero(t, e.Pool, "of no pool")
				}
			}
			assert.Equal(t, c.cleared, cleared)
		})
	}
}

// A tree that has lost everything leaves a gap; afterwards the other one alone
// says whether anything is left.
func TestOneOfTwoTreesIsLost(t *testing.T) {
	p := newPair(t)
	p.do(1, "s")
	p.do(2, "s")
	p.log.TreeLost(0, 1)
	p.trees[1] = &forest{}
	p.do(1, "c")
	assert.Empty(t, p.take(), "the second tree holds a block")
	p.do(2, "rc")
	assert.Equal(t, []messages.EventType{messages.EventRemoved, messages.EventCleared}, p.take())

	p.do(1, "s")
	p.do(2, "s")
	p.log = Resume(p.log, 0)
	snapshot(t, p.log, FirstReader, p.trees[1].keys(), withFirstPool(p.trees[2].keys(), 1))
	p.do(2, "rc")
	assert.Len(t, p.take(), 1, "a log that goes on knows what is held")
	p.do(1, "rc")
	assert.Len(t, p.take(), 2)
}

func withFirstPool(c *protocol.Changes, p messages.PoolID) *protocol.Changes {
	c.FirstPool = p
	return c
}

// Whether a tree has told of anything in between is known by pool.
func TestToldSince(t *testing.T) {
	p := newPair(t)
	p.do(1, "s")
	p.do(2, "s")
	since := p.log.Next()
	assert.False(t, p.log.ToldSince(1, since))
	p.do(1, "r")
	assert.False(t, p.log.ToldSince(1, since))
	assert.True(t, p.log.ToldSince(0, since))
	p.do(2, "r")
	assert.True(t, p.log.ToldSince(1, since))
	since = p.log.Next()
	p.log.TreeLost(0, 1)
	assert.True(t, p.log.ToldSince(1, since), "nobody knows of which pool a lost event was")
	assert.True(t, p.log.ToldSince(0, since))
}
