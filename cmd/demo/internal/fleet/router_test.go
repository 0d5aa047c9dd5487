package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/offloader/stores"
)

// known is an engine of which a router knows some blocks.
type known struct{ names map[kvevents.Hash]bool }

func (k known) match(names []kvevents.Hash) int {
	n := 0
	for n < len(names) && k.names[names[n]] {
		n++
	}
	return n
}

func (k known) blocks() int { return len(k.names) }

// knows makes members that have prefixes of a prompt, in blocks of four tokens.
func knows(t *testing.T, prompt []messages.Token, blocks ...int) (members []*member) {
	t.Helper()
	names, err := events.Names(messages.Prefix{Tokens: prompt}, 4)
	require.NoError(t, err)
	for i, n := range blocks {
		k := known{names: map[kvevents.Hash]bool{}}
		for _, name := range names[:n] {
			k.names[name] = true
		}
		members = append(members, newMember(i, k, nil))
	}
	return members
}

// sent is which of the members has been sent the latest request.
func sent(members []*member) int {
	return slices.IndexFunc(members, func(m *member) bool { return len(m.send) > 0 })
}

// flightOf is a request that is to be sent.
func flightOf(prompt []messages.Token) *flight {
	return &flight{request: &serve.Request{Tokens: prompt, Prompt: len(prompt)}}
}

func TestRoutes(t *testing.T) {
	prompt := make([]messages.Token, 41)
	for i := range prompt {
		prompt[i] = messages.Token(i)
	}
	cases := map[string]struct {
		blocks  []int
		waiting []int // uncached tokens that wait
		dead    int
		want    int
	}{
		"the longest match":                 {[]int{2, 7, 3}, []int{0, 0, 0}, -1, 1},
		"not behind a longer queue":         {[]int{2, 7, 3}, []int{0, 30, 0}, -1, 2},
		"behind a queue that costs less":    {[]int{2, 7, 3}, []int{0, 15, 0}, -1, 1},
		"the emptiest of equals":            {[]int{3, 0, 1}, []int{0, 0, 0}, 0, 2},
		"the first of equals without match": {[]int{0, 0, 0}, []int{0, 0, 0}, -1, 0},
		"never a dead one":                  {[]int{2, 7, 3}, []int{0, 0, 0}, 1, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			members := knows(t, prompt, c.blocks...)
			for i, m := range members {
				m.uncached, m.alive = c.waiting[i], i != c.dead
			}
			r := router{tokens: 4}
			f := flightOf(prompt)
			require.NoError(t, r.route(members, f))
			assert.Equal(t, c.want, sent(members))
			uncached := len(prompt) - 4*c.blocks[c.want]
			assert.Equal(t, uncached, f.uncached)
			to := members[c.want]
			assert.Equal(t, c.waiting[c.want]+uncached, to.uncached)
			to.start(f)
			to.start(f) // an answer comes behind the first token
			assert.Equal(t, c.waiting[c.want], to.uncached)
		})
	}
}

func TestRandomRoutesAreThoseOfTheSeed(t *testing.T) {
	draw := func(seed uint64) (list []int) {
		r := router{tokens: 4, random: rand.New(rand.NewPCG(seed, 0))}
		for range 40 {
			members := knows(t, make([]messages.Token, 8), 0, 1, 0)
			members[1].alive = false
			require.NoError(t, r.route(members, flightOf(make([]messages.Token, 8))))
			list = append(list, sent(members))
		}
		return list
	}
	first := draw(1)
	assert.Equal(t, first, draw(1))
	assert.NotEqual(t, draw(1), draw(2))
	assert.Subset(t, []int{0, 2}, draw(3))
}

// What an engine writes is seen when it is published, and not before.
func TestAStageIsSeenWhenItIsPublished(t *testing.T) {
	ctx := t.Context()
	store := &stores.Memory{}
	s := newStage(store)
	var keys []stores.Key
	for i := range 2*stores.MaxBatch + 3 {
		key := stores.Key{byte(i), byte(i >> 8)}
		keys = append(keys, key)
		require.NoError(t, s.Put(ctx, []stores.Object{{Key: key, Body: []byte{1}}}))
	}
	found := make([]bool, 1)
	require.NoError(t, s.Has(ctx, keys[:1], found))
	assert.Equal(t, []bool{false}, found)
	require.NoError(t, s.publish(ctx))
	n, _ := store.Len()
	assert.Equal(t, len(keys), n)
	require.NoError(t, s.Has(ctx, keys[:1], found))
	assert.Equal(t, []bool{true}, found)
	require.Error(t, s.Put(ctx, []stores.Object{{Key: keys[0]}}), "an object without a body")
}
