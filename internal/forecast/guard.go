package forecast

import (
	"math"
	"slices"
)

// guard compares the policy with plain LRU on a sample of the blocks, those whose hash is below a
// limit: a list of the sampled blocks that LRU would have cached tells how many of the sampled blocks of a
// request LRU would have hit. If LRU leads clearly, it rules for a time.
//
// All sampled blocks of a prompt are hit or missed together, so a lead of many hits may come from a few prompts. The
// noise of the lead is therefore measured: it is the root of the sum of the squares of what each request adds.
type guard struct {
	limit uint64
	index table
	list  []neighbours // by entry
	head  int32        // used least recently
	tail  int32
	free  int32 // the first of the free entries

	lookups, lead, square float64 // decayed: sampled blocks looked up, LRU's lead in hits, its square for each request
	ruling                int64   // requests for which LRU rules on
	term                  int64   // how long the next rule of LRU lasts
}

// neighbours are the entries before and behind one in a list, −1: none.
type neighbours struct{ prev, next int32 }

// A lead has to be clear of its noise: with 1.2 standard deviations, which would serve overloaded agents a little
// better, bursts of prompts that LRU happened to hold take the policy out for a thousand requests.
const (
	guardPages  = 256          // sampled blocks that LRU caches, at least
	guardSample = 32           // one block in so many, at most
	guardDecay  = 1 - 1.0/2000 // of a request
	guardMargin = 0.004        // of the look-ups
	guardNoise  = 1.6          // standard deviations of the lead
	guardTerm   = 1000         // requests
	guardGrowth = 4
)

// newGuard samples fewer blocks of a larger cache, so that the list keeps its length and its noise. LRU on one block in m
// with capacity/m entries hits what LRU hits with all of them, since the sample is drawn by the hash.
func newGuard(capacity int) guard {
	every := max(1, min(guardSample, capacity/guardPages))
	n := max(8, capacity/every)
	g := guard{limit: math.MaxUint64 / uint64(every), index: newTable(n), list: make([]neighbours, n), head: -1, tail: -1, term: guardTerm}
	for i := range g.list {
		g.list[i].next = int32(i) + 1
	}
	g.list[n-1].next = -1
	return g
}

// active tells whether plain LRU decides.
func (g *guard) active() bool { return g.ruling > 0 }

// request counts what the policy and LRU hit of the sampled blocks of a request, which are drawn, and uses them in LRU's list.
// Prompt and cached are how many signatures its prompt and its cached blocks have. It overwrites the list of sampled blocks.
func (g *guard) request(signatures []uint64, drawn []int32, prompt, cached int) {
	g.lookups, g.lead, g.square = g.lookups*guardDecay, g.lead*guardDecay, g.square*guardDecay
	// Only leading blocks count, as in the cache: LRU hits a sampled block if it has all those in front of it.
	leading, lead := true, 0.0
	for k, i := range drawn {
		at := g.index.find(hashOf(signatures[i]))
		if at >= 0 && g.list[at].prev == moving {
			at = -1 // the request has the block twice
		}
		if int(i) < prompt {
			g.lookups++
			if int(i) < cached {
				lead--
			}
			leading = leading && at >= 0
			if leading {
				lead++
			}
		}
		if at >= 0 {
			g.unlink(at)
			g.list[at].prev, drawn[k] = moving, ^at
		}
	}
	// The deepest block goes first among those of one request, so it is used first. A block that was in the list keeps its entry.
	for _, i := range slices.Backward(drawn) {
		if i < 0 {
			g.append(^i)
		} else if h := hashOf(signatures[i]); g.index.find(h) < 0 {
			g.push(h)
		}
	}
	g.lead += lead
	g.square += lead * lead
	if g.ruling > 0 {
		// While LRU rules the policy hits what LRU does, so a lead of that time says nothing of the policy's own
		// decisions. It is forgotten, and the policy gets another trial; the growing terms bound the cost of these.
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

// moving is what an entry has in front of it while it is in the table, but not in the list: its block is used now.
const moving = -2

// push adds a block as the latest used. A full list loses its least recently used one.
//
// If all entries are moving, they are appended behind the block, which would be lost to the last of them.
func (g *guard) push(hash uint64) {
	at := g.free
	switch {
	case at >= 0:
		g.free = g.list[at].next
	case g.head < 0:
		return
	default:
		at = g.head
		g.index.remove(at)
		g.unlink(at)
	}
	g.append(at)
	g.index.put(hash, at)
}

// append makes an entry, which is not in the list, the latest used.
func (g *guard) append(at int32) {
	g.list[at] = neighbours{g.tail, -1}
	if g.tail >= 0 {
		g.list[g.tail].next = at
	} else {
		g.head = at
	}
	g.tail = at
}

// unlink takes an entry out of the list; its place and its signature are the caller's to free.
func (g *guard) unlink(at int32) {
	e := &g.list[at]
	if e.prev >= 0 {
		g.list[e.prev].next = e.next
	} else {
		g.head = e.next
	}
	if e.next >= 0 {
		g.list[e.next].prev = e.prev
	} else {
		g.tail = e.prev
	}
}
