package forecast

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

// guard compares the policy with plain LRU on a sample of the blocks, those whose hash is below
// a limit: a list of the sampled blocks that LRU would have cached tells how many of the
// sampled blocks of a request LRU would have hit. If LRU leads clearly, it rules for a time.
//
// All sampled blocks of a prompt are hit or missed together, so a lead of many hits may come
// from a few prompts. The noise of the lead is therefore measured: it is the root of the sum of
// the squares of what each request adds.
//
// How many blocks of a cache are sampled is a draw as well, by a standard deviation of 6 % with
// 256 of them. A list of that many would be LRU's cache of 6 % more or fewer pages, which is a
// false lead where LRU's hit rate is steep in the capacity. So each entry weighs as many blocks
// as it stands for, and the list holds entries of the cache's weight:
//
//	prompt:   a b c d e f g h i j     c was hit, f and i are sampled and new
//	              c     f     i       i weighs h i j: half of the gap before it, all behind it
//
// Where the new blocks begin between c and f is unknown, so f stands for g, and for m blocks
// that end with f: on average as many lie between two samples, if one block in m is sampled.
// Requests of long new runs are weighed nearly exactly by that, and the mean is right for all:
// n new blocks weigh n, the samples of short ones m each.
//
// Only blocks that end with a signature can be sampled. The more blocks share a signature, the
// more likely it is sampled, here with a span of 16 and one block in 32:
//
//	blocks     0     1     2–3   4–7  8–15  16–31
//	signature  0     1     2     3    4     5
//	sampled    1/32  1/32  1/16  1/8  1/4   1/2
type guard struct {
	limit uint64
	span  protocol.Span
	every int // one block in so many is sampled, or all that have signatures, if these are fewer

	capacity int // of the cache in blocks
	blocks   tally
	// the sampled blocks that LRU would have cached, and the blocks that each stands for
	lru     *recent[int]
	weights int   // the sum of these
	drawn   []int // indices of the sampled signatures of the current request

	// decayed: sampled blocks looked up, LRU's lead in hits, its square for each request
	lookups, lead, square float64
	ruling                int64 // requests for which LRU rules on
	term                  int64 // how long the next rule of LRU lasts
}

// A lead has to be clear of its noise: with 1.2 standard deviations, which would serve
// overloaded agents a little better, bursts of prompts that LRU happened to hold take the
// policy out for a thousand requests.
const (
	guardPages  = 256          // sampled blocks that LRU caches, at least, if so many have signatures
	guardSpare  = 4            // standard deviations of their number that the list has room for
	guardSample = 36           // one signature of a whole span in so many, at most
	guardDecay  = 1 - 1.0/2000 // of a request
	guardMargin = 0.004        // of the look-ups
	guardNoise  = 1.6          // standard deviations of the lead
	guardTerm   = 1000         // requests
	guardGrowth = 4
)

// newGuard samples fewer blocks of a larger cache, so that the list keeps its length and its noise.
func newGuard(blocks int, span protocol.Span) guard {
	every := max(1, min(guardSample*int(span), blocks/guardPages))
	capacity := max(8*every, blocks)
	n := capacity / every
	n += guardSpare * int(math.Sqrt(float64(n)))
	g := guard{span: span, every: every, capacity: capacity, lru: newRecent[int](n), term: guardTerm}
	g.limit = g.limitOf(int(span))
	return g
}

// active tells whether plain LRU decides.
func (g *guard) active() bool { return g.ruling > 0 }

// request counts what the policy and LRU hit of the sampled blocks of a request, and uses them
// in LRU's list.
func (g *guard) request(r *Request) {
	g.blocks.add(g.span, r)
	g.draw(r.Signatures)
	g.lookups, g.lead, g.square = g.lookups*guardDecay, g.lead*guardDecay, g.square*guardDecay
	lead := g.leads(r)
	g.use(r.Signatures)
	g.lead += lead
	g.square += lead * lead
	if g.ruling > 0 {
		// While LRU rules the policy hits what LRU does, so a lead of that time says nothing of
		// the policy's own decisions. It is forgotten, and the policy gets another trial; the
		// growing terms bound the cost of these.
		if g.ruling--; g.ruling == 0 {
			g.lookups, g.lead, g.square = 0, 0, 0
		}
		return
	}
	if over := g.lead - guardMargin*g.lookups; over > 0 && over*over > guardNoise*guardNoise*g.square {
		g.ruling = g.term
		g.term *= guardGrowth
	}
}

// limitOf is the greatest hash with which a signature that stands for a number of blocks is
// sampled.
func (g *guard) limitOf(size int) uint64 {
	if size >= g.every {
		return math.MaxUint64
	}
	return math.MaxUint64 / uint64(g.every) * uint64(size)
}

// size is how many blocks signature i stands for: those behind the signature before, up to its own.
func (g *guard) size(i int) int {
	return signedBlocks(g.span, i+1) - signedBlocks(g.span, i)
}

// draw lists the signatures that are sampled. Those of the first blocks stand for less than a
// span, so fewer of them are.
func (g *guard) draw(signatures []uint64) {
	g.drawn = g.drawn[:0]
	for i, s := range signatures {
		if h := hashOf(s); h <= g.limit && (i > g.span.First() || h <= g.limitOf(g.size(i))) {
			g.drawn = append(g.drawn, i)
		}
	}
}

// hashOf is the hash of a signature: its upper bits are as random as all of the signature.
func hashOf(signature uint64) uint64 { return signature * 0x9e3779b97f4a7c15 }

// leads counts by how much LRU would have hit more of a request. Only leading blocks count, as
// in the cache: LRU hits a sampled block if it has all those in front of it.
func (g *guard) leads(r *Request) (lead float64) {
	prompt, cached, whole := g.span.Signatures(r.Prompt), g.span.Signatures(r.Cached), true
	for _, i := range g.drawn {
		if i >= prompt {
			break
		}
		// Where all that have signatures are sampled, they stand for different numbers of blocks.
		n := max(1, float64(g.size(i))/float64(g.every))
		g.lookups += n
		if i < cached {
			lead -= n
		}
		if whole = whole && g.lru.find(r.Signatures[i]) != nil; whole {
			lead += n
		}
	}
	return lead
}

// use makes the sampled blocks of a request the latest used, and takes out what LRU would evict
// for them. The deepest block goes first among those of one request, so it is used first.
func (g *guard) use(signatures []uint64) {
	for _, i := range g.drawn {
		if g.lru.find(signatures[i]) != nil {
			g.lru.use(signatures[i]) // so that it does not make room for the others
		}
	}
	end := signedBlocks(g.span, len(signatures))
	for k, i := range slices.Backward(g.drawn) {
		key := signatures[i]
		if g.lru.find(key) != nil {
			g.lru.use(key)
			end = 0
			continue
		}
		at := g.span.Block(i)
		begin := at + 1 - max(g.every, g.size(i))
		if k > 0 && g.lru.find(signatures[g.drawn[k-1]]) == nil {
			begin = (at+g.span.Block(g.drawn[k-1]))/2 + 1
		}
		if len(g.lru.unused) == 0 {
			g.evict()
		}
		weight := max(end, at+1) - begin
		*g.lru.use(key) = weight
		g.weights += weight
		end = begin
	}
	for g.exceeded() {
		g.evict()
	}
}

// exceeded tells whether the list would weigh nearer to the capacity without its least recently
// used entry.
func (g *guard) exceeded() bool {
	head := g.lru.head
	return head != none && g.weights-g.blocks.signedOf(g.capacity) > g.lru.entries[head].value/2
}

// evict takes out the least recently used entry.
func (g *guard) evict() {
	e := &g.lru.entries[g.lru.head]
	g.weights -= e.value
	g.lru.remove(e.key)
}

// tally counts the blocks of requests, decayed, and those up to their last signatures. What is
// behind them is in no list, but it is in the cache: in the same proportion, as a guess. Where
// all requests have one long prefix it is more, and the list reaches too far back.
//
// To count the new blocks of requests was rejected: where all that is new ends before another
// signature none of it is signed, and the list, which also holds what is used again, would be
// empty.
type tally struct{ all, signed float64 }

// add counts the blocks of a request.
func (t *tally) add(span protocol.Span, r *Request) {
	t.all = t.all*guardDecay + float64(r.Blocks)
	t.signed = t.signed*guardDecay + float64(signedBlocks(span, span.Signatures(r.Blocks)))
}

// signedOf is how many of the blocks of a cache are taken for blocks that signatures stand for.
func (t *tally) signedOf(blocks int) int {
	if t.all <= 0 {
		return blocks
	}
	return int(float64(blocks) * t.signed / t.all)
}

// signedBlocks is how many blocks the first signatures of a request stand for together, of
// which there are so many.
func signedBlocks(span protocol.Span, signatures int) int {
	if signatures == 0 {
		return 0
	}
	return span.Block(signatures-1) + 1
}
