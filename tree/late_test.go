package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// late is a reader that asks when all is over. By then most of the blocks that
// events tell of have gone, their ids name others, and the runs they lay in
// were split, joined, cut, grown again and moved.
type late struct {
	told  [][]protocol.Event
	named int // of them
	truth []map[events.Key]known
}

// known is a key as it really is.
type known struct {
	events.Entry
	tokens []messages.Token
}

// note keeps what a message caused unread, and what the tree holds after it.
func (l *late) note(tr *Tree) {
	l.told, l.truth = append(l.told, tr.TakeEvents()), append(l.truth, truthOf(tr))
}

// truthOf is what a tree holds.
func truthOf(tr *Tree) map[events.Key]known {
	truth := map[events.Key]known{}
	for b, x := range tr.blocks.node {
		if x == none {
			continue
		}
		id := protocol.BlockID(b)
		ns, full := fullOf(tr, id)
		_, i := tr.at(id)
		for p := range tr.pools {
			_, tier, held := tr.locations(x, p)[i].Page()
			if !held {
				continue
			}
			tokens := tr.symbols.hosts(tr.tokensAt(x, i))
			tokens = tokens[:len(tokens)-paddingOf(tr, id, ns)]
			truth[events.Key{Pool: messages.PoolID(p), Hash: hashOf(tr.tpb, ns, full)}] = known{
				events.Entry{Tier: tier, Priority: tr.blocks.priority[b], Tokens: len(tokens)}, tokens,
			}
		}
	}
	return truth
}

// name asks for the names of what was told up to now. The tokens that were kept
// for it are the tree's again, and what is written to them is not in what was told.
func (l *late) name(tr *Tree) {
	for ; l.named < len(l.told); l.named++ {
		tr.Restock(nameEvents(l.told[l.named]))
	}
}

// read follows everything, with a mirror that is held against the truth of each
// moment.
func (l *late) read(t require.TestingT) {
	for _, list := range l.told[l.named:] {
		nameEvents(list)
	}
	mirror, id := events.NewMirror(), uint64(0)
	for i, list := range l.told {
		for k := range list {
			list[k].ID = id
			id++
			for _, b := range list[k].Blocks {
				key := events.Key{Pool: list[k].Pool, Hash: b.Hash}
				require.Equal(t, l.truth[i][key].tokens, b.Tokens, "tokens of a block that was stored")
			}
		}
		require.NoError(t, mirror.Follow(messages.EventBatch{Events: hostEvents(list)}))
		require.Equal(t, len(l.truth[i]), mirror.Len())
		for key, entry := range mirror.All() {
			require.Equal(t, l.truth[i][key].Entry, entry)
		}
	}
}

func lateProperty(t *rapid.T) {
	m := newModel(t)
	if !m.tree.recording {
		t.Skip("nobody reads")
	}
	m.late = &late{}
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget,
		"name": func(*rapid.T) { m.late.name(m.tree) },
	})
	m.late.read(m)
}

func TestNamesOfALateReader(t *testing.T) { rapid.Check(t, lateProperty) }

func FuzzLateReader(f *testing.F) { f.Fuzz(rapid.MakeFuzz(lateProperty)) }

// What events are told of a run stays as it is when the run is cut and grows
// again in its place.
func TestToldTokensStay(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2, Events: true})
	f.put(counting(8))
	first := f.TakeEvents()
	tail := protocol.BlockID(3) // of four
	for i := range messages.Token(3) {
		f.evict(tail)
		f.put(append(counting(6), 70+i, 80))
		tail = f.apply.Stores[0].Cursor.Block
	}
	nameEvents(first)
	var told []messages.Token
	for _, b := range first[0].Blocks {
		told = append(told, b.Tokens...)
	}
	require.Equal(t, counting(8), told)
	told[0]++ // what a reader does with its events is its own affair
	require.Equal(t, 8, f.match(append(counting(6), 72, 80, 0)).Matched)
	require.NoError(t, f.Check())
}
