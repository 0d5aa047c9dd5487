package events_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// mirrorOf holds the given blocks of each pool.
func mirrorOf(
	t require.TestingT, names []kvevents.Hash, held map[messages.PoolID][]int,
) *events.Mirror {
	m := events.NewMirror()
	batch := kvevents.EventBatch{Snapshot: true}
	for p, blocks := range held {
		for _, b := range blocks {
			batch.Events = append(batch.Events, kvevents.Event{
				Type: kvevents.EventStored, Pool: p,
				Blocks: []kvevents.StoredBlock{{Hash: names[b], Priority: 35}},
			})
		}
	}
	require.NoError(t, m.Follow(batch))
	return m
}

func TestMatchOfAFullAndALimitedPool(t *testing.T) {
	limited := windows.Pool{ID: 0, Window: 8, TokensPerBlock: 4}
	full := windows.Pool{ID: 1, TokensPerBlock: 4}
	sinks := limited
	sinks.Sink = 3
	names := make([]kvevents.Hash, 6)
	for i := range names {
		names[i] = kvevents.Hash{byte(i + 1)}
	}
	all := []int{0, 1, 2, 3, 4, 5}
	for _, x := range []struct {
		name          string
		pool          windows.Pool
		limited, full []int
		want          int
	}{
		{"everything", limited, all, all, 6},
		{"nothing", limited, nil, nil, 0},
		{"the full pool lacks the first", limited, all, all[1:], 0},
		{"the full pool lacks the fourth", limited, all, []int{0, 1, 2, 4, 5}, 3},
		{"the limited pool lacks what its window has passed", limited, all[4:], all, 6},
		{"a hole in the window of 5 and 6, not in that of 3", limited, []int{0, 1, 2, 3, 5}, all, 4},
		{"a hole in every window but the last", limited, []int{3, 4, 5}, all, 6},
		{"the last is lacking", limited, []int{0, 1, 2, 3, 4}, all, 5},
		{"the sink is lacking", sinks, all[1:], all, 0},
		{"the sink and the window", sinks, []int{0, 4, 5}, all, 6},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := mirrorOf(t, names, map[messages.PoolID][]int{0: x.limited, 1: x.full})
			assert.Equal(t, x.want, m.Match([]windows.Pool{x.pool, full}, names))
		})
	}
	assert.Zero(t, events.NewMirror().Match([]windows.Pool{full}, nil))
}

// Match is the largest n for which every pool holds each block that the position
// behind n blocks needs.
func TestMatchAgainstItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := make([]kvevents.Hash, rapid.IntRange(0, 12).Draw(t, "blocks"))
		for i := range names {
			names[i] = kvevents.Hash{byte(i + 1)}
		}
		pools := []windows.Pool{{ID: 0, TokensPerBlock: 4}}
		held := map[messages.PoolID][]int{}
		for id := range messages.PoolID(rapid.IntRange(1, 3).Draw(t, "pools")) {
			p := windows.Pool{ID: id, TokensPerBlock: 4}
			if id > 0 {
				p.Window, p.Sink = rapid.IntRange(2, 20).Draw(t, "window"), rapid.IntRange(0, 9).Draw(t, "sink")
				pools = append(pools, p)
			}
			for i := range names {
				if rapid.IntRange(0, 7).Draw(t, "held") > 0 {
					held[id] = append(held[id], i)
				}
			}
		}
		want := 0
		for n := range names {
			serves := true
			for _, p := range pools {
				for b := range n + 1 {
					serves = serves && (slices.Contains(held[p.ID], b) || !p.Needs(b, (n+1)*4))
				}
			}
			if serves {
				want = n + 1
			}
		}
		require.Equal(t, want, mirrorOf(t, names, held).Match(pools, names))
	})
}

func TestNamesRefuses(t *testing.T) {
	tokens := []messages.Token{1, 2, 3, 4}
	item := func(start, length int) messages.MultimodalItem {
		return messages.MultimodalItem{Start: start, Length: length}
	}
	for _, x := range []struct {
		name   string
		prefix messages.Prefix
		size   int
		want   error
	}{
		{"no size", messages.Prefix{Tokens: tokens}, 0, messages.ErrBadRequest},
		{"an encoder input", messages.Prefix{Tokens: tokens, Encoder: tokens}, 4,
			messages.ErrNotSupported},
		{"an adapter that is not there", messages.Prefix{Namespace: messages.Namespace{LoRA: "x"},
			Tokens: tokens}, 4, messages.ErrBadRequest},
		{"an item outside",
			messages.Prefix{Tokens: tokens, Multimodal: []messages.MultimodalItem{item(3, 2)}}, 4,
			messages.ErrBadRequest},
		{"an empty item",
			messages.Prefix{Tokens: tokens, Multimodal: []messages.MultimodalItem{item(3, 0)}}, 4,
			messages.ErrBadRequest},
		{"items that overlap", messages.Prefix{Tokens: tokens,
			Multimodal: []messages.MultimodalItem{item(0, 2), item(1, 2)}}, 4, messages.ErrBadRequest},
	} {
		t.Run(x.name, func(t *testing.T) {
			names, err := events.Names(x.prefix, x.size)
			require.ErrorIs(t, err, x.want)
			assert.Empty(t, names)
		})
	}
	names, err := events.Names(messages.Prefix{Tokens: tokens[:3]}, 4)
	require.NoError(t, err)
	assert.Empty(t, names)
}
