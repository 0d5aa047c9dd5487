package bench

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// eventually and poll bound waits for other goroutines.
const (
	eventually = time.Minute
	poll       = time.Millisecond
)

// crowd is hosts that admit and release stored prompts at the same time.
type crowd struct {
	do    do
	texts [][]messages.Token
	runs  []*calls
	waits [][]time.Duration // by host, of the admissions of the last run
}

func newCrowd(hosts int, texts [][]messages.Token, do do) *crowd {
	c := &crowd{do: do, texts: texts, waits: make([][]time.Duration, hosts)}
	for i := range hosts {
		c.runs = append(c.runs, newCalls(texts[0]))
		c.waits[i] = make([]time.Duration, 0, visits)
	}
	return c
}

// visits is the admissions of one run, over all hosts.
const visits = 2048

// admit is the k-th visit of host i. All prompts have their turn, however many
// hosts there are, so that hosts are all that differs.
func (c *crowd) admit(i, k int) {
	l := c.runs[i]
	l.admit.Requests[0].Tokens = c.texts[(i+k*len(c.runs))%len(c.texts)]
	c.do(&l.admit)
	accept(l.admit.Results[0].Err)
}

func (c *crowd) release(i int) {
	l := c.runs[i]
	l.release.Steps[0] = messages.ReleaseStep{Sequence: l.admit.Results[0].Sequence, Discard: true}
	c.do(&l.release)
	accept(l.release.Results[0].Err)
}

// run starts all hosts and waits for them.
func (c *crowd) run() {
	var all sync.WaitGroup
	for i := range c.runs {
		c.waits[i] = c.waits[i][:0]
		all.Go(func() {
			for k := range visits / len(c.runs) {
				start := time.Now()
				c.admit(i, k)
				c.waits[i] = append(c.waits[i], time.Since(start))
				c.release(i)
			}
		})
	}
	all.Wait()
}

// inTurn does the same on one goroutine: all admit, then all release, as hosts do
// that take turns.
func (c *crowd) inTurn() {
	for k := range visits / len(c.runs) {
		for i := range c.runs {
			c.admit(i, k)
		}
		for i := range c.runs {
			c.release(i)
		}
	}
}

// BenchmarkHosts has 1 to 512 hosts that admit stored 4k-token prompts at once.
// The floor is one goroutine that does the same for all of them, so that as many
// sequences run and as much memory is touched: x/floor at or below 1 means that
// hosts do not get in each other's way. x/alone compares with one host that does
// all the work, x/lock with as many hosts that share the cores under one lock.
func BenchmarkHosts(b *testing.B) {
	r := dice(7)
	texts := make([][]messages.Token, 64)
	for i := range texts {
		texts[i] = random(r, shortText+1)
	}
	s := hybrid(2 * len(texts) * shortText / tokensPerBlock)
	engine, locked := s.actors(b), underLock(s.direct().Do)
	for _, text := range texts {
		newCalls(text[:shortText]).store(engine)
		newCalls(text[:shortText]).store(locked)
	}
	for _, hosts := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			one, many, bare := newCrowd(hosts, texts, engine), newCrowd(hosts, texts, engine),
				newCrowd(hosts, texts, locked)
			alone := newCrowd(1, texts, engine)
			waits, bareTimes, aloneTimes := newSamples(), newSamples(), newSamples()
			c := versus(b, func() time.Duration {
				took := timed(many.run)()
				for _, w := range slices.Concat(many.waits...) {
					waits.add(w)
				}
				bareTimes.add(timed(bare.run)())
				aloneTimes.add(timed(alone.run)())
				return took
			}, timed(one.inTurn))
			took := c.engine.quantile(0.5)
			b.ReportMetric(visits/took*1e9, "admissions/s")
			b.ReportMetric(took/bareTimes.quantile(0.5), "x/lock")
			b.ReportMetric(took/aloneTimes.quantile(0.5), "x/alone")
			b.ReportMetric(waits.quantile(0.5), "p50-ns")
			b.ReportMetric(waits.quantile(0.99), "p99-ns")
		})
	}
}

func underLock(inner do) do {
	var mu sync.Mutex
	return func(request any) {
		mu.Lock()
		defer mu.Unlock()
		inner(request)
	}
}

// BenchmarkMatchAhead asks what a second core could save: how much of a visit is the
// match, the only stage that changes nothing and could be done for the next requests
// while a round is under way. The engine visits stored prompts in turn, the floor
// looks the same prompts up. piped bounds the gain if the tree matched the next
// request on another core, visit/max(match, visit-match); both bounds it if every
// core could match, visit/max(visit/2, visit-match): neither pays for handing a match
// over or for checking it again.
func BenchmarkMatchAhead(b *testing.B) {
	for _, x := range []struct{ tokens, tokensPerBlock int }{
		{shortText, tokensPerBlock}, {longText, tokensPerBlock}, {longText, 512},
	} {
		b.Run(fmt.Sprintf("tokens=%d/block=%d", x.tokens, x.tokensPerBlock), func(b *testing.B) {
			length := x.tokens / x.tokensPerBlock * x.tokensPerBlock
			texts := make([][]messages.Token, scaled(5_000_000)/x.tokens) // 20 MB
			s := full(2 * len(texts) * length / x.tokensPerBlock)
			s.tokensPerBlock = x.tokensPerBlock
			engine, r := s.actors(b), dice(7)
			for i := range texts {
				texts[i] = random(r, length+1)
				newCalls(texts[i][:length]).store(engine)
			}
			visitor := newCalls(texts[0])
			lookup, i := &messages.Lookup{}, 0
			next := func() []messages.Token {
				i = (i + 1) % len(texts)
				return texts[i]
			}
			c := versus(b, func() time.Duration {
				visitor.admit.Requests[0].Tokens = next()
				return timed(func() { visitor.visit(engine) })()
			}, func() time.Duration {
				lookup.Prefix.Tokens = next()
				return timed(func() { engine(lookup) })()
			})
			require.Equal(b, length, visitor.reused())
			require.Equal(b, length, lookup.Found.MatchedTokens)
			visit, match := c.engine.quantile(0.5), c.floor.quantile(0.5)
			b.ReportMetric(visit/max(match, visit-match), "piped")
			b.ReportMetric(visit/max(visit/2, visit-match), "both")
		})
	}
}
