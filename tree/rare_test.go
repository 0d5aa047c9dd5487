package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// rare is a reader that asks so seldom that most events are lost. What it gets
// has the right names all the same, though tokens that nobody needs went back to
// the tree and were written to.
type rare struct {
	log    *events.Log
	mirror *events.Mirror
	ever   map[events.Key]known // all that was held at any time
	back   int                  // arrays that came back
}

// note hands on what a message caused.
func (r *rare) note(t require.TestingT, tr *Tree) {
	for key, k := range truthOf(tr) {
		r.ever[key] = k
	}
	list, gone := tr.TakeEvents(), tr.TakeGone()
	r.log.Append(list)
	r.log.Gone(gone)
	r.restock(tr, r.log.Settle())
	require.NoError(t, r.log.Check())
}

// restock spoils tokens and gives them back.
func (r *rare) restock(tr *Tree, spent [][]messages.Token) {
	for _, a := range spent {
		clear(a)
	}
	r.back += len(spent)
	tr.Restock(spent)
}

// read takes what is left, and starts anew if something was lost.
func (r *rare) read(t require.TestingT, tr *Tree) {
	batch, spent := events.Name(r.log.Take())
	r.restock(tr, spent)
	for _, e := range batch.Events {
		for _, h := range e.Hashes {
			require.Contains(t, r.ever, events.Key{Pool: e.Pool, Hash: h}, "a name of nothing")
		}
		for _, b := range e.Blocks {
			require.Equal(t, r.ever[events.Key{Pool: e.Pool, Hash: b.Hash}].tokens, b.Tokens)
		}
		if e.Type == messages.EventUpdated {
			require.Contains(t, r.ever, events.Key{Pool: e.Pool, Hash: e.Hash}, "a name of nothing")
		}
	}
	if err := r.mirror.Follow(batch); err != nil {
		require.ErrorIs(t, err, events.ErrStale)
		var s protocol.Snapshot
		tr.Snapshot(&s)
		keys, spent := events.Name(r.log.Snapshot(s.Events))
		r.restock(tr, spent)
		require.NoError(t, r.mirror.Follow(keys))
	}
	truth := truthOf(tr)
	require.Equal(t, len(truth), r.mirror.Len())
	for key, entry := range r.mirror.All() {
		require.Equal(t, truth[key].Entry, entry)
	}
}

func rareProperty(t *rapid.T) {
	m := newModel(t)
	if !m.tree.recording {
		t.Skip("nobody reads")
	}
	m.rare = &rare{log: events.New(rapid.IntRange(1, 12).Draw(t, "kept")), mirror: events.NewMirror(), ever: map[events.Key]known{}}
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget,
		"read": func(*rapid.T) {
			if m.int(0, 3, "reads") == 0 {
				m.rare.read(m, m.tree)
			}
		},
	})
	m.rare.read(m, m.tree)
}

func TestNamesOfARareReader(t *testing.T) { rapid.Check(t, rareProperty) }

func FuzzRareReader(f *testing.F) { f.Fuzz(rapid.MakeFuzz(rareProperty)) }

// A tree whose events nobody reads hands out the same tokens again and again.
func TestUnreadNamingsReuseTokens(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 4, Events: true})
	r := &rare{log: events.New(4), mirror: events.NewMirror(), ever: map[events.Key]known{}}
	seen := map[*messages.Token]bool{}
	for i := range messages.Token(40) {
		prompt := counting(400)
		prompt[0] = 1000 + i
		f.put(prompt)
		list := f.TakeEvents()
		seen[&list[0].Spans[0].Naming.Tokens[0]] = true
		r.log.Append(list)
		for b := protocol.BlockID(99); b >= 0; b-- {
			f.evict(b)
		}
		r.note(t, f.Tree)
	}
	require.Less(t, len(seen), 8, "kept events need theirs, and no others")
	require.Greater(t, r.back, 30)
	require.Empty(t, f.namings.list[1:], "one run at a time")
}
