package coordinator

import (
	"errors"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// demanding measures which pool's memory is worth most, so that a rebalance by
// demand knows where to move it.
//
// Evictions alone say little: most evicted blocks are never asked for again. What
// counts is work that one pool's shortage has caused. A prompt that could have
// been reused further, had some pools not lacked blocks that others still know,
// costs these pools the tokens that are computed again; a request or a step that
// was refused for lack of pages costs the pool the tokens of the pages it lacked. Blocks that every pool has lost are nobody's: more
// memory for one alone would not have kept them.
//
// So a pool that keeps blocks longer than the others do has no cost, and the one
// that keeps them the shortest has all of it: memory moves until all pools forget
// at about the same age, and none keeps what no prompt can use without another.
type demanding struct {
	cost    []float64 // by pool, tokens; halved when it was looked at in vain
	prompt  float64   // tokens of all prompts meanwhile
	evicted []int64   // by pool, at the last look
	from    int       // the last move, −1: none
	to      int
	step    float64 // of the memory of the smaller of the two
}

// The demand rule. Memory moves from the pool with the least cost to the one with
// the most if that is hysteresis times as much, so that a workload that sways
// does not push memory to and fro. The step grows while moves go one way
// and shrinks when they turn back.
const (
	hysteresis = 2
	firstStep  = 1.0 / 4
	leastStep  = 1.0 / 64
	mostStep   = 1.0 / 2
	// worthMoving is the least cost, as a part of all prompt tokens.
	worthMoving = 0.02
	// evidence is the prompt tokens that a look needs, as a part of what the
	// largest pool holds: what a move has done shows when pages have turned over.
	evidence = 1.0 / 4
)

func (d *demanding) init(pools int) {
	d.cost, d.evicted = make([]float64, pools), make([]int64, pools)
	d.from, d.to, d.step = -1, -1, firstStep
}

// noteMatch counts what an admitted prompt had to compute again, shared by the
// pools that lacked blocks.
func (d *demanding) noteMatch(m *protocol.MatchItem, prompt int) {
	d.prompt += float64(prompt)
	if m.Matched >= m.Reach {
		return
	}
	short := 0
	for _, n := range m.Lacks {
		if n > 0 {
			short++
		}
	}
	for p, n := range m.Lacks {
		if n > 0 {
			d.cost[p] += float64(m.Reach-m.Matched) / float64(short)
		}
	}
}

// noteRefusal counts a request that found too few pages: the tokens that those
// it lacked would have held. A host tries again, and each time counts.
func (c *Coordinator) noteRefusal(err error) {
	var r *messages.Refusal
	if !errors.As(err, &r) || r.Code != messages.OutOfPages {
		return
	}
	tokens := float64((r.Need - r.Available) * c.TokensPerBlock)
	c.demanding.prompt += tokens
	for p := range c.Pools {
		if c.Pools[p].Name == r.Pool {
			c.demanding.cost[p] += tokens
		}
	}
}

// demand gives the fractions that measured demand asks for; nil if the split is
// right as it is.
func (c *Coordinator) demand() map[string]float64 {
	d := &c.demanding
	if d.prompt < evidence*float64(c.capacity()) && d.from >= 0 {
		return nil
	}
	low, high := c.dearest()
	if low == high {
		d.fade()
		return nil
	}
	switch {
	case d.from == low && d.to == high:
		d.step = min(2*d.step, mostStep)
	case d.from == high && d.to == low:
		d.step = max(d.step/2, leastStep)
	}
	total := int64(0)
	for p := range c.Pools {
		total += c.bytesOf(p)
	}
	held := max(c.pages[low].Held+c.reserved[low], c.pages[low].Used, 1)
	smaller := min(c.bytesOf(low), c.bytesOf(high))
	pages := min(c.pages[low].Total-held, max(1, int(d.step*float64(smaller/c.Pools[low].PageBytes()))))
	if pages <= 0 {
		d.fade()
		return nil
	}
	d.from, d.to = low, high
	clear(d.cost)
	d.prompt = 0
	step := int64(pages) * c.Pools[low].PageBytes()
	fractions := map[string]float64{}
	for p := range c.Pools {
		bytes := c.bytesOf(p)
		switch p {
		case low:
			bytes -= step
		case high:
			bytes += step
		}
		fractions[c.Pools[p].Name] = float64(bytes) / float64(total)
	}
	return fractions
}

// capacity is the tokens that the largest pool holds.
func (c *Coordinator) capacity() (tokens int) {
	for p := range c.Pools {
		tokens = max(tokens, c.pages[p].Total*c.TokensPerBlock)
	}
	return tokens
}

// bytesOf is the device memory of a pool.
func (c *Coordinator) bytesOf(p int) int64 { return int64(c.pages[p].Total) * c.Pools[p].PageBytes() }

// dearest gives the pools that have cost least and most; the same one twice if
// nothing speaks for a move. Cost for each byte of a pool was tried: it favours
// small pools, and did worse on every workload of the benchmark.
func (c *Coordinator) dearest() (low, high int) {
	d := &c.demanding
	for p := range d.cost {
		if d.cost[p] < d.cost[low] {
			low = p
		}
		if d.cost[p] > d.cost[high] {
			high = p
		}
	}
	if d.cost[high] == 0 {
		return c.evicting()
	}
	if d.cost[high] < worthMoving*d.prompt || d.cost[high] < hysteresis*d.cost[low] {
		return 0, 0
	}
	return low, high
}

// evicting is the choice while no pool has cost anything: from one that has
// evicted nothing to the one that evicts most of its memory.
func (c *Coordinator) evicting() (low, high int) {
	d := &c.demanding
	pressure := make([]float64, len(c.Pools))
	for p := range pressure {
		now := c.stats.Pools[p].Evicted
		pressure[p] = float64(now-d.evicted[p]) / float64(c.pages[p].Total)
		d.evicted[p] = now
		if pressure[p] < pressure[low] || pressure[p] == pressure[low] && c.pages[p].Free > c.pages[low].Free {
			low = p
		}
		if pressure[p] > pressure[high] {
			high = p
		}
	}
	if pressure[low] > 0 || pressure[high] == 0 {
		return 0, 0
	}
	return low, high
}

// fade halves what was measured: it counts again with what comes.
func (d *demanding) fade() {
	for p := range d.cost {
		d.cost[p] /= 2
	}
	d.prompt /= 2
}
