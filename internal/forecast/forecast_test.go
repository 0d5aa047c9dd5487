package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
)

// TestValueWaitsForTheExpectedUse: a piece is worth more when its use is due than just
// after its last use, and less when the use is overdue; more likely uses and shorter gaps
// are worth more.
func TestValueWaitsForTheExpectedUse(t *testing.T) {
	m := newModel()
	f := prediction{scale: (math.Log(30))}
	fresh, due, overdue := value(m, f, 0), value(m, f, 8_000), value(m, f, 3_000_000)
	assert.Less(t, fresh, due)
	assert.Less(t, overdue, fresh)
	assert.Greater(t, value(m, prediction{f.scale, 1}, 1000), value(m, f, 1000))
	assert.Greater(t, value(m, prediction{(math.Log(5)), 0}, 1000), value(m, f, 1000))
	assert.InEpsilon(t, value(m, f, 0)/6, value(m, prediction{(math.Log(180)), 0}, 0), 0.3,
		"six times the gap occupies pages for six times the time")
}

// TestValueIsTheBestStoppingTime compares the table with a direct computation.
func TestValueIsTheBestStoppingTime(t *testing.T) {
	m := newModel()
	for row := range scores {
		score := scoreLow + scoreStep*float64(row)
		for k := range bins {
			best := 0.0
			for end := k + 1; end <= bins; end++ {
				used, held, alive := 0.0, 0.0, 1.0
				for j := k; j < end; j++ {
					h, w := logistic(m.bias[j].value+score), math.Exp(edge(j+1))-math.Exp(edge(j))
					used += alive * h
					held += alive * (h*w/2 + (1-h)*w)
					alive *= 1 - h
				}
				best = max(best, used/held)
			}
			inTable := math.Exp(m.table[row][k])
			require.InEpsilon(t, best, inTable, 1e-3, "score %v bin %d", score, k)
		}
	}
}

// TestModelLearnsOdds: a few hundred observations of one bin tell apart two values of a
// feature, one of which is used six times as often, and variances only fall on the way.
func TestModelLearnsOdds(t *testing.T) {
	m, r := newModel(), rand.New(rand.NewPCG(1, 1))
	often, rarely := with(Features{}, featureUses, 3), with(Features{}, featureUses, 1)
	before := m.weight[featureUses][3].variance
	for range 400 {
		m.learnBin(&often, 15, r.Float64() < 0.3)
		m.learnBin(&rarely, 15, r.Float64() < 0.05)
		after := m.weight[featureUses][3].variance
		require.Less(t, after, before)
		before = after
	}
	require.NoError(t, errors.Join(m.check()...))
	chance := func(f Features) float64 { return logistic(m.bias[15].value + m.predict(&f).score) }
	assert.InDelta(t, 0.3, chance(often), 0.1)
	assert.InDelta(t, 0.05, chance(rarely), 0.05)
	assert.Equal(t, weightVariance, m.weight[featureUses][2].variance,
		"nothing was observed of two uses")
}

// TestLastBlocksTeachOnlyThemselves: whether last blocks are used changes no other weight.
func TestLastBlocksTeachOnlyThemselves(t *testing.T) {
	m := newModel()
	f := with(Features{}, featureUses, 1)
	last := with(f, featureLast, 1)
	bias, others := m.bias, m.predict(&f)
	for range 50 {
		m.learnBin(&last, 15, true)
	}
	assert.Equal(t, bias, m.bias)
	assert.Equal(t, others, m.predict(&f))
	assert.Greater(t, m.predict(&last).score, others.score)
}

// with gives a feature a value.
func with(f Features, feature int, value uint8) Features {
	f.Values[feature] = value
	return f
}

// predicted is the prediction for a run of the current request.
func predicted(p *Policy, r Run) prediction {
	f := p.Piece(r)
	return p.model.predict(&f)
}

// value is that of a piece of an age.
func value(m *model, p prediction, ageMillis int64) float64 {
	return math.Exp(m.logValue(p, ageMillis))
}

// end ends a request with these pieces on its path, after a block from block from on was drawn and
// put under watch.
func end(p *Policy, r *Request, from int, runs ...Run) (watched uint64) {
	last := runs[len(runs)-1]
	if block, ok := p.Draw(r, from); ok {
		run := runs[0]
		if block >= int(last.From) {
			run = last
		}
		watched = p.Watch(r, run, block)
	}
	p.End(r, runs[max(0, len(runs)-2)], last)
	return watched
}

// visits makes requests of one session every gap, each with one more block.
func visits(p *Policy, session uint64, n int, at time.Duration, gap time.Duration) (f Features) {
	r := Request{}
	for i := range n {
		r.Signatures = append(r.Signatures, session<<20|uint64(i)<<2|1)
		r.Blocks, r.Prompt, r.Cached = i+1, i+1, i
		r.Arrived, r.Released = at+time.Duration(i)*gap, at+time.Duration(i)*gap
		p.Begin(&r)
		run := Run{Uses: 1}
		f = p.Piece(run)
		end(p, &r, 0, run)
	}
	return f
}

// TestPolicyLearnsGaps: sessions that return every second and sessions that return every
// two minutes are told apart by their pace.
func TestPolicyLearnsGaps(t *testing.T) {
	p := New(1000, 1, 1)
	var fast, slow Features
	for s := range uint64(60) {
		at := time.Duration(s) * time.Hour
		fast = visits(p, 2*s+1, 8, at, time.Second)
		slow = visits(p, 2*s+2, 8, at+20*time.Minute, 2*time.Minute)
		require.NoError(t, p.Check())
	}
	assert.Greater(t, p.model.predict(&slow).scale-p.model.predict(&fast).scale, 2.0, "%s", p)
	assert.Greater(t, p.model.predict(&fast).score, -3.0)
}

// TestAddedTokens: the tokens that a prompt adds are those beyond the session's last prompt and its
// answer. The first prompt of a session has none, since nothing is known of what is new in it.
func TestAddedTokens(t *testing.T) {
	p := New(1000, 1, 1)
	blocks := []uint64{1, 3, 5, 7, 9, 11, 13, 15}
	ask := func(prompt, tokens, answer int) Features {
		r := Request{RequestFacts: protocol.RequestFacts{Signatures: blocks[:prompt], Blocks: prompt,
			Prompt: prompt, Tokens: tokens, Answer: answer}}
		p.Begin(&r)
		run := Run{Uses: 1, Front: 12}
		end(p, &r, 0, run)
		return p.Piece(run)
	}
	first := ask(4, 70, 40)
	assert.Zero(t, first.Values[featureAdded])
	assert.EqualValues(t, 9, first.Values[featureFront])
	assert.EqualValues(t, 3, ask(6, 70+40+3, 7).Values[featureAdded])
	assert.EqualValues(t, 1, ask(8, 113, 7).Values[featureAdded],
		"shorter than the last prompt with its answer")
	require.NoError(t, p.Check())
}

// TestFoundBlocksAreNotNew: of a session's first prompt those blocks are new that neither the pool
// nor host memory had.
func TestFoundBlocksAreNotNew(t *testing.T) {
	for _, c := range []struct{ cached, found, want int }{{2, 0, 6}, {2, 4, 4}, {4, 2, 4}, {0, 9, 0},
		{0, 0, 8}} {
		p := New(1000, 1, 1)
		p.Begin(&Request{RequestFacts: protocol.RequestFacts{Signatures: []uint64{1, 3, 5, 7, 9, 11, 13,
			15}, Blocks: 8, Prompt: 8, Tokens: 8, Found: c.found}, Cached: c.cached})
		assert.Equal(t, logFeature(c.want, featureNew), p.Piece(Run{Uses: 1}).Values[featureNew],
			"%+v", c)
	}
}

// TestEqualSeedsDecideAlike: the state is a function of requests and seed.
func TestEqualSeedsDecideAlike(t *testing.T) {
	a, b, c := New(500, 1, 7), New(500, 1, 7), New(500, 1, 8)
	for s := range uint64(20) {
		for _, p := range []*Policy{a, b, c} {
			visits(p, s+1, 10, time.Duration(s)*time.Minute, 3*time.Second)
		}
	}
	assert.Equal(t, a.String(), b.String())
	assert.Equal(t, a.watch, b.watch)
	assert.NotEqual(t, a.watch.ring, c.watch.ring)
}

// TestModelOfHistory drives the policy with random requests and checks it after each.
func TestModelOfHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := protocol.Span(rapid.IntRange(1, 5).Draw(t, "span"))
		p := New(rapid.IntRange(0, 300).Draw(t, "capacity"), span, 1)
		now := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += time.Duration(rapid.SampledFrom([]int{0, 0, 5, 4000}).Draw(t,
				"passes")) * time.Millisecond
			r := Request{RequestFacts: protocol.RequestFacts{Arrived: now},
				Released: now + time.Duration(rapid.IntRange(0, 3).Draw(t, "serves"))*time.Second}
			session := rapid.Uint64Range(1, 5).Draw(t, "session")
			r.Blocks = rapid.IntRange(0, 60).Draw(t, "blocks")
			for i := range span.Signatures(r.Blocks) {
				r.Signatures = append(r.Signatures, mixed(session<<32|uint64(i)))
			}
			r.Prompt = rapid.IntRange(0, r.Blocks).Draw(t, "prompt")
			r.Cached = rapid.IntRange(0, r.Prompt).Draw(t, "cached")
			p.Begin(&r)
			f := p.Piece(Run{Uses: 1})
			runs := []Run{{Uses: 1}}
			if r.Blocks > 1 {
				runs = append(runs, Run{From: int32(r.Blocks - 1), Uses: 1, Last: true})
			}
			entry := end(p, &r, rapid.IntRange(0, r.Prompt).Draw(t, "from"), runs...)
			if entry != 0 {
				require.Contains(t, r.Signatures[:span.Signatures(r.Blocks-1)], entry,
					"the last block is not drawn")
			}
			require.GreaterOrEqual(t, p.Value(p.Supersede(f, entry), p.Now()), 0.0)
			require.NoError(t, p.Check())
		}
	})
}

func mixed(x uint64) uint64 {
	g := generator{x}
	return g.next() | 1
}

// TestGuardReturnsToLRU: where the policy hits nothing and LRU would, LRU decides.
func TestGuardReturnsToLRU(t *testing.T) {
	p := New(3200, 1, 1)
	r := Request{}
	for i := range 1000 {
		r.Signatures = append(r.Signatures, mixed(uint64(i)))
	}
	r.Blocks, r.Prompt = len(r.Signatures), len(r.Signatures)
	for i := 0; !p.PlainLRU(); i++ {
		require.Less(t, i, 100)
		r.Arrived, r.Released = time.Duration(i)*time.Second, time.Duration(i)*time.Second
		p.Begin(&r)
	}
	require.NoError(t, p.Check())
}

// TestStandingClock counts requests while the engine's time stands still.
// TestGuardKnowsBursts: hits come in bursts, all sampled blocks of a prompt at once. LRU and
// the policy hit every fourth prompt each, now one and now the other: no reason to return to
// LRU, although it leads for a time.
func TestGuardKnowsBursts(t *testing.T) {
	p := New(4096, 1, 1)
	r := Request{RequestFacts: protocol.RequestFacts{Signatures: make([]uint64, 160), Prompt: 160}}
	random, prompt := generator{7}, 0
	for k := range 4000 {
		r.Cached = 0
		switch random.below(4) {
		case 0: // the last prompt again, which the policy has given up
		case 1:
			prompt, r.Cached = k, r.Prompt // a prompt that LRU has given up
		default:
			prompt = k
		}
		for i := range r.Signatures {
			r.Signatures[i] = mixed(uint64(prompt<<10 | i))
		}
		p.guard.request(&r)
		require.False(t, p.PlainLRU(), "request %d: %s", k, p)
	}
	require.NoError(t, p.Check())
}

// TestStandingClock counts requests while the engine's time stands still.
func TestStandingClock(t *testing.T) {
	var c clock
	for range standingRequests + 10 {
		c.request(time.Second)
	}
	assert.Equal(t, int64(1000+10*standingStep), c.now)
	before := c.now
	c.request(9 * time.Second)
	assert.Greater(t, c.now, before, "the engine's time moves again")
	assert.InDelta(t, c.now-500, c.at(8500*time.Millisecond), 1)
}

// BenchmarkRank is the cost of one comparison of a victim.
func BenchmarkRank(b *testing.B) {
	p := New(1000, 1, 1)
	r := rand.New(rand.NewPCG(1, 2))
	var f [1024]Features
	for i := range f {
		for k, n := range featureValues {
			f[i].Values[k] = uint8(r.IntN(n))
		}
	}
	p.clock.now = 100_000
	sum := int64(0)
	for i := 0; b.Loop(); i++ {
		sum += int64(p.Rank(f[i%1024], int64(i%90_000), 0))
	}
	require.NotZero(b, sum)
}

// TestLastBlocksTeachTheirOwnWeight: prompts whose last block is never used again lower the
// score of last blocks, and not that of the blocks in front, which are.
func TestLastBlocksTeachTheirOwnWeight(t *testing.T) {
	p := New(1000, 1, 1)
	var front, last prediction
	for i := range 2000 {
		session, now := uint64(i%20), time.Duration(i)*time.Second
		r := Request{RequestFacts: protocol.RequestFacts{Arrived: now, Blocks: 4, Prompt: 4},
			Released: now}
		for k := range uint64(3) {
			r.Signatures = append(r.Signatures, session<<24|k<<2|1)
		}
		r.Signatures = append(r.Signatures, uint64(i)<<24|3) // of this request alone
		runs := []Run{{Uses: 1}, {From: 3, Uses: 1, Last: true}}
		p.Begin(&r)
		front, last = predicted(p, runs[0]), predicted(p, runs[1])
		end(p, &r, 0, runs...)
		require.NoError(t, p.Check())
	}
	assert.InDelta(t, front.scale, last.scale, 0.25, "last blocks teach nothing about gaps")
	assert.Less(t, last.score, front.score-2, "%s", p)
}

// TestValueFollowsWhatIsLearned: a piece that has been used long ago is valued by what the
// policy has learned since, and an unfinished wait is learned from.
func TestValueFollowsWhatIsLearned(t *testing.T) {
	p := New(1000, 1, 1)
	r := Request{RequestFacts: protocol.RequestFacts{Signatures: []uint64{1, 3}, Blocks: 2, Prompt: 2}}
	p.Begin(&r)
	old := p.Piece(Run{Uses: 1})
	before := p.model.predict(&old).score
	for i := range 2000 { // prompts that never come again
		r = Request{RequestFacts: protocol.RequestFacts{Signatures: []uint64{mixed(uint64(2 * i)),
			mixed(uint64(2*i + 1))}, Blocks: 2, Prompt: 2}}
		r.Arrived, r.Released = time.Duration(i)*time.Second, time.Duration(i)*time.Second
		p.Begin(&r)
		require.Equal(t, old, p.Piece(Run{Uses: 1}))
		end(p, &r, 0, Run{Uses: 1})
	}
	assert.Less(t, p.model.predict(&old).score, before-1, "%s", p)
}

// TestSpans: a policy that has a signature for every fourth block finds the sessions of prompts
// that grow by four blocks as one that has all signatures does, and watches as many blocks.
func TestSpans(t *testing.T) {
	policies := map[protocol.Span]*Policy{1: New(1000, 1, 1), 4: New(1000, 4, 1)}
	turns := map[protocol.Span]int{}
	for span, p := range policies {
		for i := range 200 {
			session, turn := i%20, i/20
			now := time.Duration(i) * time.Second
			r := Request{RequestFacts: protocol.RequestFacts{Arrived: now, Blocks: 8 + 4*turn,
				Prompt: 8 + 4*turn}, Released: now, Cached: 4}
			for k := range span.Signatures(r.Blocks) {
				r.Signatures = append(r.Signatures, mixed(uint64(session<<20|span.Block(k))))
			}
			p.Begin(&r)
			turns[span] += p.session.turn
			end(p, &r, 0, Run{Uses: 1}, Run{From: int32(r.Blocks - 1), Uses: 1, Last: true})
		}
		require.NoError(t, p.Check())
	}
	assert.Equal(t, 20*(0+1+2+7*mostTurns), turns[1])
	assert.Equal(t, turns[1], turns[4])
	assert.InDelta(t, len(policies[1].watch.index), len(policies[4].watch.index), 60)
}

// TestDeepBlocksSaveMoreWork: with CountWork a piece is worth more the deeper its next victim is,
// by the root of the work that it saves; but not where waits or last uses decide, nor for
// checkpoints.
func TestDeepBlocksSaveMoreWork(t *testing.T) {
	p := New(1000, 1, 1)
	p.Advance(time.Minute)
	f := Features{}
	rank := p.Rank(f, 0, 0)
	require.Equal(t, rank, p.Rank(f, 0, 500))
	p.CountWork(100)
	require.Equal(t, rank, p.Rank(f, 0, 0))
	for depth, times := range map[int32]float64{100: 2, 300: 4, 9900: 100} {
		require.InDelta(t, unit*math.Log(times)/2, p.Rank(f, 0, depth)-rank, unit/1000, "depth %d", depth)
	}
	waits := await(p, f)
	require.Equal(t, p.Rank(waits, 0, 0), p.Rank(waits, 0, 500))
	p.guard.ruling = 1
	require.Equal(t, p.Rank(f, 0, 0), p.Rank(f, 0, 500))
	c := NewCheckpoints()
	c.CountWork(100)
	require.Equal(t, c.Rank(f, 0, 0), c.Rank(f, 0, 500))
}
