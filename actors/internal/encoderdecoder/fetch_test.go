package encoderdecoder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// stored is a setup whose engines save what is committed, with so many host pages in each
// pool.
func stored(s stores.Store, host int) setup {
	return setup{
		pages: []windows.PageCounts{{Primary: 200, Secondary: host}, {Primary: 100, Secondary: host}},
		store: &actors.StoreConfig{Store: s, Model: "m", Save: actors.SaveOnCommit, WaitForCopies: true},
	}
}

// flush waits until everything is saved.
func (r *rig) flush() int {
	r.t.Helper()
	saved, err := actors.StoreOf(r.Engine).Flush(context.Background(), 0)
	require.NoError(r.t, err)
	return saved
}

// fetched is the answer to a fetch.
func (r *rig) fetched(p messages.Prefix) actors.Fetched {
	r.t.Helper()
	f, err := actors.StoreOf(r.Engine).Fetch(context.Background(), p)
	require.NoError(r.t, err)
	return f
}

// storedTokens is what a lookup says of the store.
func (r *rig) storedTokens(p messages.Prefix) int {
	r.t.Helper()
	f, err := actors.StoreOf(r.Engine).Lookup(context.Background(), p)
	require.NoError(r.t, err)
	return f.StoredTokens
}

// save leaves an input of six tokens, of which the last block has two, and a prompt of nine
// in a store.
func save(t tester, s stores.Store) {
	r := newRig(t, stored(s, 8))
	r.store(ask(run(100, 6), run(0, 9)))
	assert.Equal(t, 2+2, r.flush(), "two whole blocks of either side")
	r.end()
}

// A second engine has the input and the prompt of the first one, and only these.
func TestFetch(t *testing.T) {
	memory := &stores.Memory{}
	save(t, memory)
	r := newRig(t, stored(memory, 8))
	defer r.end()
	for _, p := range []messages.Prefix{
		{Encoder: run(100, 5)}, {Encoder: run(100, 8)}, {Encoder: run(101, 6)},
		{Encoder: run(100, 6), Namespace: messages.Namespace{Salt: "x"}},
		{Encoder: run(100, 6), Tokens: run(50, 9)}, {Encoder: run(101, 6), Tokens: run(0, 9)},
		{Encoder: run(100, 6), EncoderItems: []messages.MultimodalItem{{Length: 2}}},
	} {
		assert.Zero(t, r.storedTokens(p), "%+v", p)
		assert.Equal(t, actors.Fetched{}, r.fetched(p), "%+v", p)
	}
	input, prompt := messages.Prefix{Encoder: run(100, 6)},
		messages.Prefix{Encoder: run(100, 6), Tokens: run(0, 9)}
	assert.Equal(t, []int{6, 8}, []int{r.storedTokens(input), r.storedTokens(prompt)})
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 6}, r.fetched(input))
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 8}, r.fetched(prompt))
	assert.Equal(t, actors.Fetched{LocalTokens: 6}, r.fetched(input), "a second time nothing comes in")
	r.verify()
	l := r.start(ask(run(100, 6), run(0, 9)))
	assert.Equal(t, []int{6, 8}, []int{l.admitted.Cross.ReusedTokens, l.admitted.ReusedTokens})
	r.verify()
	assert.Zero(t, r.flush(), "what came from the store is not saved again")
}

// An admission that waits for a fetch has both.
func TestFetchBeforeAdmission(t *testing.T) {
	memory := &stores.Memory{}
	save(t, memory)
	r := newRig(t, stored(memory, 8))
	defer r.end()
	request := ask(run(100, 6), run(0, 9))
	request.Fetch = time.Minute
	l := r.start(request)
	assert.Equal(t, []int{6, 8}, []int{l.admitted.Cross.ReusedTokens, l.admitted.ReusedTokens})
	r.verify()
}

// Of an input all blocks come in or none: the encoder looks both ways.
func TestFetchOfHalfAnInput(t *testing.T) {
	memory := &stores.Memory{}
	save(t, memory)
	r := newRig(t, stored(memory, 1))
	defer r.end()
	input := messages.Prefix{Encoder: run(100, 6)}
	assert.Equal(t, actors.Fetched{}, r.fetched(input), "one host page for two blocks")
	assert.Equal(t, actors.Fetched{Blocks: 1, LocalTokens: 4},
		r.fetched(messages.Prefix{Encoder: run(100, 6), Tokens: run(0, 9)}))
	r.assertCross(0, 0, 100)
	r.verify()
}

// By default an input is saved when a second prompt reuses it, and the decoder's blocks when
// theirs is.
func TestSaveOnReuse(t *testing.T) {
	memory := &stores.Memory{}
	s := stored(memory, 8)
	s.store.Save = actors.SaveOnReuse
	r := newRig(t, s)
	r.store(ask(run(100, 6), run(0, 9)))
	assert.Zero(t, r.flush())
	r.store(ask(run(100, 6), run(50, 9)))
	assert.Equal(t, 2, r.flush(), "the blocks of the input")
	r.store(ask(run(100, 6), run(0, 9)))
	assert.Equal(t, 2, r.flush(), "the blocks of the prompt")
	r.end()
}

// TestRandomRestarts: engines on one store follow each other. A fetch finds exactly the
// inputs that one of them has computed, whole, and every byte is right.
func TestRandomRestarts(t *testing.T) { rapid.Check(t, randomRestarts) }

func randomRestarts(rt *rapid.T) {
	memory := &stores.Memory{}
	s := stored(memory, 300)
	c := &randomHosts{rt: rt, roomy: true, known: map[string]int{}}
	s.now = &c.now
	c.rig = newRig(rt, s)
	defer func() { c.end() }()
	saved := map[string]int{}
	note := func() {
		for name, n := range c.known {
			saved[name] = n
		}
	}
	actions := c.actions()
	delete(actions, "pin")
	actions[""] = func(*rapid.T) { note(); c.verify() }
	actions["restart"] = func(*rapid.T) {
		c.flush()
		c.end()
		c.rig, c.known = newRig(rt, s), map[string]int{}
	}
	actions["fetch"] = func(*rapid.T) {
		request := c.request()
		c.flush()
		got := c.fetched(messages.Prefix{Encoder: request.Encoder, Namespace: request.Namespace})
		require.Equal(rt, saved[nameOf(request)], got.LocalTokens)
		if got.LocalTokens > 0 {
			c.known[nameOf(request)] = got.LocalTokens
		}
		c.fetched(messages.Prefix{Encoder: request.Encoder, Tokens: request.Tokens,
			Namespace: request.Namespace})
	}
	rt.Repeat(actions)
}
