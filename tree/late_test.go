package tree

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// late is a reader that looks at its events when all is over. By then most of the
// blocks that events tell of have gone, their ids name others, and the runs they
// lay in were split, joined, cut, grown again and moved.
type late struct {
	log   *events.Log
	told  []kvevents.EventBatch
	truth []map[events.Key]known
}

// known is a key as it really is.
type known struct {
	events.Entry
	tokens []messages.Token
}

// note takes what a message caused, and what the tree holds after it.
func (l *late) note(t require.TestingT, tr *Tree) {
	logChanges(l.log, tr)
	batch, err := l.log.Take(events.FirstReader)
	require.NoError(t, err)
	l.told, l.truth = append(l.told, batch), append(l.truth, truthOf(tr))
	require.NoError(t, l.log.Check())
}

// logChanges tells a log what a tree has changed.
func logChanges(log *events.Log, tr *Tree) {
	if c := tr.TakeChanges(); c != nil {
		log.Append(c)
	}
}

// truthOf is what a tree holds.
func truthOf(tr *Tree) map[events.Key]known {
	truth := map[events.Key]known{}
	for b := range tr.arena.blocks {
		id := protocol.BlockID(b)
		if !tr.arena.alive(id) {
			continue
		}
		ns, full := fullOf(tr, id)
		for p := range tr.arena.pools {
			_, tier, held := tr.arena.locations[p][id].Page()
			if !held {
				continue
			}
			tokens := tr.arena.symbols.restore(slices.Clone(tr.arena.tokensOf(id)))
			tokens = tokens[:len(tokens)-paddingOf(tr, id, ns)]
			truth[events.Key{Pool: messages.PoolID(p), Hash: hashOf(tr.arena.tpb, ns, full)}] = known{
				events.Entry{Tier: tier, Priority: tr.arena.blocks[b].priority, Tokens: len(tokens)}, tokens,
			}
		}
	}
	return truth
}

// read follows everything, with a mirror that is held against the truth of each
// moment.
func (l *late) read(t require.TestingT) {
	mirror := events.NewMirror()
	for i, batch := range l.told {
		for _, e := range batch.Events {
			for _, b := range e.Blocks {
				require.Equal(t, l.truth[i][events.Key{Pool: e.Pool, Hash: b.Hash}].tokens, b.Tokens,
					"tokens of a block that was stored")
			}
		}
		require.NoError(t, mirror.Follow(batch))
		require.Equal(t, len(l.truth[i]), mirror.Len())
		for key, entry := range mirror.All() {
			require.Equal(t, l.truth[i][key].Entry, entry)
		}
	}
}

func lateProperty(t *rapid.T) {
	m := newModel(t)
	if !m.tree.recording {
		t.Skip("events are off")
	}
	m.late = &late{log: events.New(events.Config{Limit: math.MaxInt})}
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget,
	})
	m.late.read(m)
}

func TestNamesOfALateReader(t *testing.T) { rapid.Check(t, lateProperty) }

func FuzzLateReader(f *testing.F) { f.Fuzz(rapid.MakeFuzz(lateProperty)) }

// What events are told of a run stays as it is when the run is cut and grows
// again in its place, and what a reader does with its tokens is its own affair.
func TestToldTokensStay(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2, Events: true})
	log := events.New(events.Config{Limit: 100})
	f.put(counting(8))
	logChanges(log, f.Tree)
	batch, err := log.Take(events.FirstReader)
	require.NoError(t, err)
	tail := protocol.BlockID(3) // of four
	for i := range messages.Token(3) {
		f.evict(tail)
		f.put(append(counting(6), 70+i, 80))
		logChanges(log, f.Tree)
		tail = f.apply.Stores[0].Cursor.Block
	}
	var told []messages.Token
	for _, b := range batch.Events[0].Blocks {
		told = append(told, b.Tokens...)
		b.Tokens[0]++
	}
	require.Equal(t, counting(8), told)
	require.Equal(t, 8, f.match(append(counting(6), 72, 80, 0)).Matched)
	require.NoError(t, f.Check())
	require.NoError(t, log.Check())
}

// A tree does not touch a record of changes that was taken.
func TestTakenChangesStay(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 4, Events: true})
	var last *protocol.Changes
	for i := range messages.Token(20) {
		prompt := counting(400)
		prompt[0] = 1000 + i
		f.put(prompt)
		c := f.TakeChanges()
		require.Equal(t, prompt, c.Tokens)
		require.Len(t, c.Blocks, 100)
		require.Equal(t, 1, c.Events())
		if last != nil {
			prompt[0]--
			require.Equal(t, prompt, last.Tokens)
		}
		last = c
	}
	require.Nil(t, f.TakeChanges(), "nothing has changed")
}
