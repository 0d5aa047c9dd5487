package consumers

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
)

// believer is a reader, and how many leading blocks of a prompt it takes for reusable.
type believer struct {
	name   string
	answer func(prompt) []string
	blocks func(prompt) int
	knows  func(messages.Namespace) bool
}

// believers start the readers of an engine at an endpoint.
var believers = map[string]struct {
	change func(*wire.Options)
	// tiers tells whether the reader follows blocks that move: Dynamo 1.6.1 forgets what is on the
	// device behind a block that goes to host memory, and does not find it again.
	tiers bool
	start func(*testing.T, *host, string) believer
}{
	"llm-d": {snapshots, true, func(t *testing.T, _ *host, endpoint string) believer {
		reader := subscribeLLMD(t, endpoint)
		return believer{"llm-d", reader.tiers, func(p prompt) int { return len(reader.tiers(p)) },
			anyNamespace}
	}},
	"AIBrix": {
		func(o *wire.Options) { o.Config.Format = "aibrix"; o.Config.SnapshotOnSubscribe = true },
		true,
		func(t *testing.T, h *host, endpoint string) believer {
			reader := subscribeAIBrix(t, endpoint)
			plain := func(ns messages.Namespace) bool { return ns == messages.Namespace{} }
			return believer{"AIBrix", reader.answer(h),
				func(p prompt) int { return reader.blocks(p.tokens) }, plain}
		},
	},
	"Dynamo": {snapshots, false, func(t *testing.T, h *host, endpoint string) believer {
		d := startDynamo(t)
		d.register(endpoint)
		return believer{"Dynamo", d.answer(h),
			func(p prompt) int { return d.find(p).Longest / blockTokens }, anyNamespace}
	}},
}

func anyNamespace(messages.Namespace) bool { return true }

// onDevice is the shape without host memory.
func (m shape) onDevice() shape {
	m.pages = slices.Clone(m.pages)
	for i := range m.pages {
		m.pages[i].Primary += m.pages[i].Secondary
		m.pages[i].Secondary = 0
	}
	return m
}

// matched is how many tokens an admission of a prompt would reuse.
func (h *host) matched(p prompt) int {
	found, err := h.engine.Lookup(h.t.Context(), kvactor.Prefix{Namespace: p.ns, Tokens: p.tokens})
	require.NoError(h.t, err)
	return found.MatchedTokens
}

// reach is how many of the first blocks of a prompt are reused by a prompt that goes on behind
// them as some prompt of the past did, and then otherwise.
func (h *host) reach(p prompt, blocks int) (most int) {
	first := p.tokens[:blocks*blockTokens]
	for _, q := range h.all {
		if q.ns != p.ns || len(q.tokens) < len(first) || !slices.Equal(q.tokens[:len(first)], first) {
			continue
		}
		for n := len(first); n <= len(q.tokens); n += blockTokens {
			most = max(most, min(blocks, h.matched(prompt{q.ns, append(q.tokens[:n:n], 1000)})/blockTokens))
		}
	}
	return most
}

// What a reader believes of a prompt is what an admission reuses, on models whose windows and
// states need more than full attention has. Each block that it believes in is reused by some
// prompt, and none is reused that it does not know. A prompt reuses less than it has in common
// with others if it parts from them between two places where a reuse may end.
func TestWhatReadersBelieveIsReused(t *testing.T) {
	for name, kind := range believers {
		for _, m := range shapes() {
			t.Run(name+", "+m.name, func(t *testing.T) {
				endpoint := freeEndpoint(t)
				if !kind.tiers {
					m = m.onDevice()
				}
				h := newHostOf(t, m, endpoint, kind.change)
				defer h.close()
				reader := kind.start(t, h, endpoint)
				believed, reused := 0, 0
				for range 60 {
					h.step()
					h.follow(reader.name, reader.answer)
					p := h.drawn()
					if !reader.knows(p.ns) {
						continue
					}
					n := reader.blocks(p)
					assert.Equal(t, n, h.reach(p, n), "%v in %+v", p.tokens, p.ns)
					got := h.serve(p) / blockTokens
					assert.LessOrEqual(t, got, n, "%v in %+v", p.tokens, p.ns)
					believed, reused = believed+n, reused+got
					require.NoError(t, h.p.Poll(t.Context()))
				}
				t.Logf("%d of %d blocks", reused, believed)
				assert.Positive(t, reused)
			})
		}
	}
}
