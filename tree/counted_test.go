package tree

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// twins are two trees that get the same messages: one lists its changes, the other counts.
type twins struct {
	*rapid.T
	listing, counting *fixture
	now               time.Duration
	page              messages.PageID
}

func (w *twins) int(low, high int, name string) int { return rapid.IntRange(low, high).Draw(w.T, name) }

// both sends an Apply to both trees.
func (w *twins) both(a protocol.Apply) {
	a.Now = w.now
	for _, f := range []*fixture{w.listing, w.counting} {
		c := a
		c.Stores = append([]protocol.StoreItem(nil), a.Stores...)
		f.Apply(&c)
	}
}

// store offers a prompt of few different tokens, so that prompts have prefixes in common.
func (w *twins) store(*rapid.T) {
	tokens := make([]messages.Token, w.int(1, 12, "tokens"))
	for i := range tokens {
		tokens[i] = messages.Token(w.int(1, 2, "token"))
	}
	s := protocol.StoreItem{Tokens: tokens, To: len(tokens), Prompt: len(tokens)}
	for range w.listing.arena.pools {
		var table []messages.PageID
		for range (len(tokens) + 1) / 2 {
			w.page++
			table = append(table, []messages.PageID{w.page, w.page, messages.NoPage}[w.int(0, 2, "page")])
		}
		s.Tables = append(s.Tables, table)
	}
	if w.int(0, 2, "retention") == 0 {
		s.Retention = &messages.Retention{Ranges: []messages.RetentionRange{{
			Start: 2 * w.int(0, 2, "start"), End: messages.EndOfPrompt, Priority: messages.Priority(w.int(10, 90, "priority")),
			Duration: time.Duration(w.int(0, 2, "seconds")) * time.Second,
		}}}
		if s.Retention.Ranges[0].Start >= len(tokens) {
			s.Retention = nil
		}
	}
	w.both(protocol.Apply{Stores: []protocol.StoreItem{s}})
}

// held are all places of blocks, in the order of ids.
func (w *twins) held() (list []protocol.BlockMove) {
	arena := &w.listing.arena
	for b := range arena.blocks {
		for p := range arena.pools {
			if id := protocol.BlockID(b); arena.alive(id) && arena.locations[p][id] != protocol.Nowhere {
				list = append(list, protocol.BlockMove{Block: id, Pool: messages.PoolID(p)})
			}
		}
	}
	return list
}

// move drops contents, or moves them to the other tier or another page.
func (w *twins) move(*rapid.T) {
	var a protocol.Apply
	held := w.held()
	if len(held) == 0 {
		return
	}
	for _, m := range rapid.Permutation(held).Draw(w.T, "held")[:w.int(1, min(4, len(held)), "moves")] {
		w.page++
		m.To = rapid.SampledFrom([]protocol.Location{protocol.Nowhere, protocol.OnDevice(w.page), protocol.OnHost(w.page)}).Draw(w.T, "to")
		a.Moves = append(a.Moves, m)
	}
	w.both(a)
}

func (w *twins) forget(*rapid.T) {
	for _, f := range []*fixture{w.listing, w.counting} {
		f.Forget(&protocol.Forget{All: true, Keep: make([][]protocol.BlockID, len(f.arena.pools)), Now: w.now})
	}
}

// wait makes time pass, so that priorities end.
func (w *twins) wait(*rapid.T) {
	w.now += time.Duration(w.int(0, 2500, "ms")) * time.Millisecond
	w.both(protocol.Apply{})
}

// again takes a snapshot of the tree that counts: it lists from there on, and counts again
// when it is told to.
func (w *twins) again(*rapid.T) {
	var s protocol.Snapshot
	w.counting.Snapshot(&s)
	require.True(w.T, w.counting.listed())
	w.store(nil)
	require.Equal(w.T, copied(w.listing.TakeChanges()), copied(w.counting.TakeChanges()))
	w.counting.CountChanges()
}

// copied is a copy of a record, without empty lists.
func copied(c *protocol.Changes) (to protocol.Changes) {
	if c != nil {
		to.Add(c)
	}
	return to
}

// compare holds the number against the list.
func (w *twins) compare(t *rapid.T) {
	want, got := w.listing.TakeChanges(), w.counting.TakeChanges()
	if want == nil || want.Events() == 0 {
		require.Nil(t, got)
	} else {
		require.NotNil(t, got)
		require.Equal(t, protocol.Changes{Counted: want.Events()}, copied(got))
		w.counting.ReturnChanges(got)
	}
	if want != nil {
		w.listing.ReturnChanges(want)
	}
	require.NoError(t, w.counting.Check())
}

// A tree that counts its changes says of each message as many events as a tree that lists them.
func TestCountedChangesAreAsMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{TokensPerBlock: 2, Events: true, Host: true, Pools: rapid.SampledFrom([][]PoolShape{
			{{}}, {{Window: 3}, {}}, {{}, {Window: 4}, {Window: 2}},
		}).Draw(t, "pools")}
		w := &twins{T: t, listing: newFixture(c), counting: newFixture(c)}
		w.counting.CountChanges()
		t.Repeat(map[string]func(*rapid.T){
			"store": w.store, "store more": w.store, "store again": w.store, "move": w.move, "move more": w.move,
			"forget": w.forget, "wait": w.wait, "again": w.again, "": w.compare,
		})
	})
}
