package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// What the policy forecast costs beside priority_lru, which is the floor of every row.

// settledRequests is after how many requests a row begins: the policy learns from every request
// at first, and costs more.
const settledRequests = 9000

// arrivals is the time between two requests of the rows of policies: the policy's clock
// has to move, as that of a server does.
const arrivals = 50 * time.Millisecond

// evicting is a full pool that takes the pages of one prompt after the other. No prompt is
// used again, so every page that is taken was cached.
type evicting struct {
	prompt int // pages
	pool   *pool.Pool
	take   protocol.PoolWork
	leave  protocol.PoolWork
	facts  protocol.RequestFacts
	blocks []protocol.BlockID
	name   *splitmix
	use    protocol.Use
	now    time.Duration
	all    bool // the attachment and the drop count, not the eviction alone
}

// splitmix makes the signatures of blocks.
type splitmix struct{ state uint64 }

func (s *splitmix) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	x := s.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) | 1
}

// scatterings is for how many times the pages of a pool prompts of all lengths come before the rows
// whose pages are scattered.
const scatterings = 20

func newEvicting(p *pool.Pool, prompt int, all, scattered bool) *evicting {
	e := &evicting{pool: p, prompt: prompt, name: &splitmix{1}, all: all}
	e.take.Ops = []protocol.PoolOp{{Kind: protocol.Take}}
	e.leave.Ops = make([]protocol.PoolOp, 2)
	if scattered {
		lengths := splitmix{2}
		for range scaled(scatterings * p.Counts().Total / prompt) {
			e.prompt = 1 + int(lengths.next()%uint64(2*prompt-1))
			e.next()
		}
		e.prompt = prompt
	}
	for range max(2*p.Counts().Total/prompt, scaled(settledRequests)) {
		e.next()
	}
	return e
}

func (e *evicting) next() time.Duration {
	op := &e.take.Ops[0]
	op.N = e.prompt
	op.Pages, e.take.Victims = op.Pages[:0], e.take.Victims[:0]
	e.now += arrivals
	e.take.Now, e.leave.Now = e.now, e.now
	start := time.Now()
	e.pool.Do(&e.take)
	took := time.Since(start)
	e.blocks, e.facts.Signatures = e.blocks[:0], e.facts.Signatures[:0]
	for _, p := range op.Pages {
		e.blocks = append(e.blocks, protocol.BlockID(p))
		e.facts.Signatures = append(e.facts.Signatures, e.name.next())
	}
	e.use += 2
	e.facts.Arrived, e.facts.Blocks, e.facts.Prompt, e.facts.Answer = e.now, len(op.Pages),
		len(op.Pages), 100
	e.leave.Ops[0] = protocol.PoolOp{Kind: protocol.AttachPages, Pages: op.Pages, Blocks: e.blocks,
		Priority: messages.DefaultPriority}
	e.leave.Ops[1] = protocol.PoolOp{Kind: protocol.Drop, Pages: op.Pages, Use: e.use,
		Request: &e.facts}
	start = time.Now()
	e.pool.Do(&e.leave)
	if e.all {
		took += time.Since(start)
	}
	return took
}

// BenchmarkPolicyEvict takes the pages of prompts from a full pool: the eviction alone, and
// with all that a pool does for such a prompt.
//
// Where all prompts have one length, plain LRU takes those of one prompt for the next, so that they
// adjoin for ever. Scattered: prompts of many lengths came before, as in a server that has run for
// some time.
func BenchmarkPolicyEvict(b *testing.B) {
	for _, part := range []string{"take", "scattered", "all"} {
		for _, prompt := range []int{16, 256} {
			for _, pages := range []int{10_000, 100_000, 1_000_000, 10_000_000} {
				b.Run(fmt.Sprintf("%s/prompt=%d/%d", part, prompt, pages), func(b *testing.B) {
					if quick() && pages > 10_000 {
						b.Skip("large pools are for full runs")
					}
					if !large() && pages > 1_000_000 {
						b.Skip("ten million pages are for KVACTOR_BENCH=large")
					}
					open := func(p *pool.Pool) *evicting {
						return newEvicting(p, prompt, part == "all", part == "scattered")
					}
					above := open(
						pool.NewWith("forecast", pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}))
					below := open(pool.New("lru", pages))
					c := versus(b, above.next, below.next)
					require.Equal(b, pages, above.pool.Counts().Cached)
					b.ReportMetric(c.engine.quantile(0.5)/float64(prompt), "ns/page")
					b.ReportMetric(c.floor.quantile(0.5)/float64(prompt), "lru-ns/page")
				})
			}
		}
	}
}

// policy is an engine of one pool with an eviction policy and a clock that moves.
func policy(b *testing.B, name string, pages, tokensPerBlock int) (do, *time.Duration) {
	s, now := full(pages), new(time.Duration)
	s.policy, s.tokensPerBlock = name, tokensPerBlock
	s.clock = func() time.Duration { return *now }
	return s.actors(b), now
}

// BenchmarkPolicyRequest is a request from admission to release through the actors. Visit: a
// prompt that is stored and fits. Store: a new prompt for which there are free pages. Full: a
// new prompt whose pages are all evicted from others.
func BenchmarkPolicyRequest(b *testing.B) { policyRequests(b, wholeRequest) }

// BenchmarkPolicyAdmission is the admission alone of the requests of BenchmarkPolicyRequest: the
// match, and the pages that the prompt gets, before which no token of an answer can be computed.
// The policy learns from a request when it is released.
func BenchmarkPolicyAdmission(b *testing.B) { policyRequests(b, admissionOnly) }

// What of a request is measured.
const (
	wholeRequest = iota
	admissionOnly
)

func policyRequests(b *testing.B, part int) {
	for _, kind := range []string{"visit", "store", "full"} {
		for _, tokensPerBlock := range []int{16, 64, 512} {
			b.Run(fmt.Sprintf("%s/block=%d", kind, tokensPerBlock), func(b *testing.B) {
				crossed(b, func(measured bool) side {
					name := windows.PriorityLRU
					if measured {
						name = windows.Forecast
					}
					return requests(b, kind, name, tokensPerBlock, part)
				}, scaled(settledRequests))
			})
		}
	}
}

// prompts is how many prompts of BenchmarkPolicyRequest fit, and promptBlocks how long they are.
const (
	prompts      = 32
	promptBlocks = 128
)

// requests is one side of BenchmarkPolicyRequest.
func requests(b *testing.B, kind, name string, tokensPerBlock, part int) side {
	engine, now := policy(b, name, prompts*promptBlocks, tokensPerBlock)
	admission := time.Duration(0)
	if whole := engine; part == admissionOnly {
		engine = func(m any) {
			if _, ok := m.(*messages.Admit); !ok {
				whole(m)
				return
			}
			start := time.Now()
			whole(m)
			admission = time.Since(start)
		}
	}
	next := func() time.Duration { return 0 }
	switch kind {
	case "visit":
		var list []*calls
		for i := range prompts / 2 {
			tokens := random(dice(uint64(i)), promptBlocks*tokensPerBlock)
			newCalls(tokens).store(engine)
			list = append(list, newCalls(append(tokens, vocabulary)))
		}
		i := 0
		next = func() time.Duration {
			i = (i + 1) % len(list)
			return timed(func() { list[i].store(engine) })()
		}
	case "store":
		next = newStoring(engine, random(dice(3), promptBlocks*tokensPerBlock), prompts).next
	case "full":
		next = newStoring(engine, random(dice(3), promptBlocks*tokensPerBlock), 0).next
	}
	return func() time.Duration {
		*now += arrivals
		took := next()
		if part == admissionOnly {
			return admission
		}
		return took
	}
}
