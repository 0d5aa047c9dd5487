package load

import (
	"testing"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// set is a handful of worlds of one kind, and what must have happened in them.
type set struct {
	name    string
	bounds  bounds
	is      func(p *plan) bool
	happens []string
}

// sets are the kinds of worlds that have found faults of the engine, and those that cover the rest.
var sets = []set{
	{
		"several hosts while memory moves by demand", bounds{noFaults: true, auto: true},
		func(p *plan) bool { return p.hosts > 2 },
		[]string{"pages moved by demand", "drafts accepted later", "rows compared"},
	}, {
		"rebalances while copies fail", bounds{},
		func(p *plan) bool { return p.rebalance && p.copies && !p.panics },
		[]string{"rebalance", "copies made to fail", "rewind"},
	}, {
		"beams whose prompts come in chunks", bounds{noFaults: true},
		func(p *plan) bool { return p.chunked && p.beams > 1 && p.cache.MaxAttentionWindow != nil },
		[]string{"beams in chunks", "beams appended"},
	}, {
		"panics while calls wait for pages", bounds{},
		func(p *plan) bool { return p.panics && p.room > 0 && p.hosts > 1 },
		[]string{"recoveries", "admit, waited in vain"},
	}, {
		"an encoder and several hosts", bounds{},
		func(p *plan) bool { return p.model.Encodes() && p.hosts > 1 },
		[]string{"encoder rows", "tokens reused"},
	}, {
		"recurrent states", bounds{},
		func(p *plan) bool { return p.model.Recurrent() },
		[]string{"states compared", "fork", "drafts accepted later"},
	}, {
		"a store, and a second engine on it", bounds{},
		func(p *plan) bool { return p.withStore() && !p.model.Recurrent() },
		[]string{"objects saved", "objects fetched", "fetched tokens"},
	}, {
		"two tiers, two ranks", bounds{noFaults: true},
		func(p *plan) bool { return p.ranks > 1 && p.pages[0].Secondary > 0 },
		[]string{"pages offloaded", "pages onboarded", "import"},
	},
}

// TestLoad plays the first worlds of each kind.
func TestLoad(t *testing.T) {
	worlds := 8
	if testing.Short() {
		worlds = 3
	}
	for _, s := range sets {
		t.Run(s.name, func(t *testing.T) {
			total := tally{}
			for seed, n := uint64(1), 0; n < worlds; seed++ {
				p, err := drawPlan(seed, s.bounds)
				require.NoError(t, err)
				if !s.is(&p) {
					continue
				}
				n++
				dog := watch(p, s.bounds, 90*time.Second)
				problems := total.play(p)
				dog.Stop()
				require.Empty(t, problems, "%s\n%s", &p, replay(seed, s.bounds))
			}
			for _, what := range s.happens {
				if !testing.Short() {
					assert.Positive(t, total[what], what)
				}
			}
		})
	}
}

// TestDrawing: a seed decides all that is drawn before a world runs.
func TestDrawing(t *testing.T) {
	for seed := range uint64(200) {
		a, err := drawPlan(seed, bounds{})
		require.NoError(t, err)
		b, err := drawPlan(seed, bounds{})
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

// TestBytes: rows differ with every token before them, and what fill writes is what same accepts.
func TestBytes(t *testing.T) {
	p := prompt{}
	a, b := p.extend(nil, []kvactor.Token{1, 2, 3}), p.extend(nil, []kvactor.Token{0, 2, 3})
	for i := range a {
		assert.NotEqual(t, a[i], b[i])
	}
	for n := range 20 {
		row := make([]byte, n)
		fill(row, a[2])
		assert.True(t, same(row, a[2]))
		if n > 2 {
			assert.False(t, same(row, b[2]))
			row[n-1]++
			assert.False(t, same(row, a[2]))
		}
	}
}
