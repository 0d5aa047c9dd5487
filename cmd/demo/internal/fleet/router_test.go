package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/offloader/stores"
)

// known is an engine of which a router knows some blocks.
type known struct {
	Engine
	names map[kvevents.Hash]bool
}

func (k known) match(names []kvevents.Hash) int {
	n := 0
	for n < len(names) && k.names[names[n]] {
		n++
	}
	return n
}

func (k known) index() Index { return Index{Blocks: len(k.names)} }

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
		members = append(members, &member{Engine: k, number: i, alive: true, flights: map[int]*flight{}})
	}
	return members
}

// sent is which of the members has been sent the latest request.
func sent(members []*member) int {
	return slices.IndexFunc(members, func(m *member) bool { return len(m.send) > 0 })
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
			f, err := r.route(members, Request{Number: 1, Prompt: prompt})
			require.NoError(t, err)
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
		for i := range 40 {
			members := knows(t, make([]messages.Token, 8), 0, 1, 0)
			members[1].alive = false
			_, err := r.route(members, Request{Number: i, Prompt: make(Tokens, 8)})
			require.NoError(t, err)
			list = append(list, sent(members))
		}
		return list
	}
	first := draw(1)
	assert.Equal(t, first, draw(1))
	assert.NotEqual(t, draw(1), draw(2))
	assert.Subset(t, []int{0, 2}, draw(3))
}

func TestTokensAreWrittenShortly(t *testing.T) {
	q := Request{Number: 3, Prompt: Tokens{1, 2, messages.MaxToken}, Answer: Tokens{}}
	text, err := json.Marshal(q)
	require.NoError(t, err)
	assert.JSONEq(t, `{"number":3,"prompt":"AQAAAAIAAAD///9/","answer":"","arrival":0}`, string(text))
	var got Request
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, q, got)
	for _, bad := range []string{`"AQAA"`, `7`, `"?"`} {
		assert.Error(t, json.Unmarshal([]byte(bad), &got.Prompt), bad)
	}
}

// What is wrong in a stream of events is an error: its index would not be exact.
func TestStreamsAreHeldToTheirWord(t *testing.T) {
	name := func(n int) string { return fmt.Sprintf("%016x", n) }
	follow := func(texts ...string) (*stream, error) {
		s := &stream{blocks: map[uint64]struct{}{}, changed: make(chan struct{})}
		for _, text := range texts {
			var b batch
			require.NoError(t, json.Unmarshal([]byte(text), &b))
			if err := s.apply(&b); err != nil {
				return s, err
			}
		}
		return s, nil
	}
	begin := `{"sequence":4,"events":[{"type":"cleared"},{"type":"stored","blocks":["` + name(1) +
		`","` + name(2) + `"]}]}`
	s, err := follow(begin, `{"sequence":5,"events":[{"type":"moved","blocks":["`+name(1)+
		`"]},{"type":"removed","blocks":["`+name(2)+`"]}]}`)
	require.NoError(t, err)
	assert.Equal(t, Index{Blocks: 1, Events: 4}, s.index())
	hash := func(n byte) (h kvevents.Hash) { h[len(h)-1] = n; return h }
	assert.Equal(t, 1, s.match([]kvevents.Hash{hash(1), hash(2), hash(1)}))
	require.NoError(t, s.reach(t.Context(), 6))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.reach(ended, 7), context.Canceled)

	for what, text := range map[string]string{
		"batch 6 of events": `{"sequence":6,"events":[]}`,
		"is stored, and was": `{"sequence":5,"events":[{"type":"stored","blocks":["` + name(1) +
			`"]}]}`,
		"is removed, and was": `{"sequence":5,"events":[{"type":"removed","blocks":["` + name(3) +
			`"]}]}`,
		`with the name "x"`: `{"sequence":5,"events":[{"type":"removed","blocks":["x"]}]}`,
		"is priority, and was": `{"sequence":5,"events":[{"type":"priority","blocks":["` + name(3) +
			`"]}]}`,
	} {
		_, err := follow(begin, text)
		require.ErrorContains(t, err, what)
	}
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
