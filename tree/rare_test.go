package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// rare is readers that ask so seldom that most events are lost, of a log that
// fails now and then. What each gets has the right names all the same.
type rare struct {
	log     *events.Log
	readers map[kvevents.ReaderID]*events.Mirror
	ever    map[events.Key]known  // all that was held at any time
	taken   []kvevents.EventBatch // and not looked at yet
}

// note passes on what a message caused.
func (r *rare) note(t require.TestingT, tr *Tree) {
	for key, k := range truthOf(tr) {
		r.ever[key] = k
	}
	logChanges(r.log, tr)
	require.NoError(t, r.log.Check())
}

// name checks that all names of what was taken are of something.
func (r *rare) name(t require.TestingT, batch kvevents.EventBatch) kvevents.EventBatch {
	require.NoError(t, r.log.Check())
	for _, e := range batch.Events {
		for _, h := range e.Hashes {
			require.Contains(t, r.ever, events.Key{Pool: e.Pool, Hash: h}, "a name of nothing")
		}
		for _, b := range e.Blocks {
			require.Equal(t, r.ever[events.Key{Pool: e.Pool, Hash: b.Hash}].tokens, b.Tokens)
		}
		if e.Type == kvevents.EventUpdated {
			require.Contains(t, r.ever, events.Key{Pool: e.Pool, Hash: e.Hash}, "a name of nothing")
		}
	}
	return batch
}

// read takes what is left for a reader, which starts again if something was lost.
func (r *rare) read(t require.TestingT, tr *Tree, id kvevents.ReaderID) {
	mirror := r.readers[id]
	d, err := r.log.Take(id)
	require.NoError(t, err)
	if err := mirror.Follow(r.name(t, d)); err != nil {
		require.ErrorIs(t, err, events.ErrStale)
		require.NoError(t, mirror.Follow(r.name(t, r.snapshot(t, tr, id))))
	}
	truth := truthOf(tr)
	require.Equal(t, len(truth), mirror.Len())
	for key, entry := range mirror.All() {
		require.Equal(t, truth[key].Entry, entry)
	}
}

// snapshot takes a snapshot for a reader.
func (r *rare) snapshot(t require.TestingT, tr *Tree, id kvevents.ReaderID) kvevents.EventBatch {
	var s protocol.Snapshot
	tr.Snapshot(&s)
	d, err := r.log.Snapshot(id, s.Keys)
	require.NoError(t, err)
	return d
}

func rareProperty(t *rapid.T) {
	m := newModel(t)
	if !m.tree.recording {
		t.Skip("events are off")
	}
	limit := rapid.IntRange(1, 12).Draw(t, "kept")
	r := &rare{log: events.New(events.Config{Limit: limit}),
		readers: map[kvevents.ReaderID]*events.Mirror{}, ever: map[events.Key]known{}}
	r.readers[events.FirstReader] = events.NewMirror()
	for range rapid.IntRange(0, 2).Draw(t, "more readers") {
		id, err := r.log.OpenReader()
		require.NoError(t, err)
		r.readers[id] = events.NewMirror()
	}
	m.rare = r
	reader := func() kvevents.ReaderID {
		return kvevents.ReaderID(m.int(0, len(r.readers)-1, "reader"))
	}
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget,
		"read": func(*rapid.T) {
			if m.int(0, 3, "reads") == 0 {
				r.read(m, m.tree, reader())
			}
		},
		// A snapshot that is looked at later than others, or never; its reader asks again.
		"take": func(*rapid.T) {
			id := reader()
			r.taken = append(r.taken, r.snapshot(m, m.tree, id))
			require.NoError(m, r.readers[id].Follow(r.name(m, r.snapshot(m, m.tree, id))))
			r.read(m, m.tree, id)
		},
		"name": func(*rapid.T) {
			for _, d := range r.taken {
				r.name(m, d)
			}
			r.taken = nil
		},
		"fail": func(*rapid.T) {
			if m.int(0, 3, "fails") == 0 {
				r.log = events.Resume(r.log, m.int(1, 3, "events lost"))
				require.NoError(m, r.log.Check())
			}
		},
	})
	for id := range len(r.readers) {
		r.read(m, m.tree, kvevents.ReaderID(id))
	}
}

func TestNamesOfRareReaders(t *testing.T) { rapid.Check(t, rareProperty) }

func FuzzRareReader(f *testing.F) { f.Fuzz(rapid.MakeFuzz(rareProperty)) }
