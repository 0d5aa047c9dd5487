package published

import "github.com/kvactor/kvactor/pool/evict"

// The parts of gdsf.
const (
	leaves uint8 = iota
	inner
)

// attentionTokens is the depth at which a token takes twice as long as the first one: 2 × 8e9
// operations for the weights against 4 × 32 heads × 128 × 32 layers for each token before it,
// in a model of the shape of Llama-3.1-8B.
const attentionTokens = 30_518

// gdsf weighs the uses of a block by the time that computing it takes, which grows with its
// depth. The weight of the last victim is added to that of what is used later, so that blocks
// that are not used any more fall behind (Cherkasova, "Improving WWW proxies performance with
// greedy-dual-size-frequency caching policy", HP Laboratories 1998).
//
// Only leaves go, as long as there are some: by weight alone the first blocks of a prompt, which
// cost least, would go before the rest, which could not be matched then.
type gdsf struct {
	perBlock
	age   float64 // the weight of the last victim
	slope float64 // the cost of a block beyond that of the one before it; that of the first is 1
}

func newGDSF(c *evict.Core, o evict.Options) evict.Policy {
	g := &gdsf{slope: float64(o.BlockTokens) / attentionTokens}
	g.setup(c, o, g)
	return g
}

// use weighs a block anew.
func (g *gdsf) use(p int32, _ bool) {
	r := &g.pages[p]
	r.uses++
	r.rank = g.age + float64(r.uses)*(1+g.slope*float64(g.core.Page(p).Depth))
}

// linked moves a page between the parts.
func (g *gdsf) linked(p int32) {
	r := &g.pages[p]
	part := inner
	if len(g.links[p].Behind) == 0 {
		part = leaves
	}
	if part != r.part {
		g.shift(p, part, r.rank)
	}
}

// leave notes the weight of a victim.
func (g *gdsf) leave(p int32) { g.age = g.pages[p].rank }

// first is the leaf of the least weight.
func (g *gdsf) first(q *blockQueue) int32 {
	if p := q.top(leaves); p != evict.None {
		return p
	}
	return q.top(inner)
}
