package tree

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// checker collects what is wrong and what the walk has counted. The counts are made
// again from the blocks, independently of those in the tree, so that a wrong count
// cannot confirm itself.
type checker struct {
	*Tree
	problems []error
	seen     int // blocks
	heldSeen int
	refs     []int32 // of symbols
	members  []int32 // blocks of sessions
	timed    int
	pages    []map[protocol.Location]protocol.BlockID // by pool
}

func (c *checker) expect(ok bool, format string, args ...any) {
	if !ok {
		c.problems = append(c.problems, fmt.Errorf(format, args...))
	}
}

// Check walks everything and joins all problems. It costs a walk over all blocks, so
// it runs after each message only under the build tag invariants.
func (t *Tree) Check() error {
	c := checker{Tree: t}
	c.refs = make([]int32, len(t.arena.symbols.values))
	c.members = make([]int32, len(t.arena.sessions.values))
	for range t.arena.pools {
		c.pages = append(c.pages, map[protocol.Location]protocol.BlockID{})
	}
	for i, r := range t.arena.roots {
		if r.children == protocol.NoBlock {
			c.expect(slices.Contains(t.arena.freeRoots, int32(i)), "root %d is empty", i)
			continue
		}
		c.expect(t.arena.rootOf(r.namespace, r.cross) == int32(i),
			"root %d is not found by its namespace", i)
		c.expect(r.cross == (r.input > 0), "root %d has an encoder's input of %d tokens", i, r.input)
		c.siblings(spot{int32(i), protocol.NoBlock}, r.children)
	}
	for b := range t.arena.walk() {
		c.block(b)
		c.siblings(t.arena.behind(b), t.arena.blocks[b].children)
	}
	c.totals()
	return errors.Join(c.problems...)
}

// block checks a block.
func (c *checker) block(b protocol.BlockID) {
	c.seen++
	r := &c.arena.blocks[b]
	c.expect(int(r.tokens) == c.arena.tpb || r.tokens > 0 && int(r.tokens) < c.arena.tpb &&
		c.arena.isLeaf(b),
		"block %d has %d tokens, or others behind a part", b, r.tokens)
	c.expect(!c.arena.isLeaf(b) || c.arena.held(b), "block %d is a ghost with nothing behind it", b)
	c.expect(r.generation > 0 && r.generation <= c.arena.generation,
		"block %d is of generation %d of %d", b, r.generation, c.arena.generation)
	for p := range c.arena.pools {
		l := c.arena.locations[p][b]
		if l == protocol.Nowhere {
			continue
		}
		c.expect(c.arena.pools[p].Cross == c.arena.cross(b),
			"block %d is in pool %d, which is not of its kind", b, p)
		other, twice := c.pages[p][l]
		c.expect(!twice, "blocks %d and %d are both at %d in pool %d", other, b, l, p)
		// Two blocks with one page would read each other's contents.
		c.pages[p][l] = b
		if page, tier, _ := l.Page(); tier == messages.Primary {
			c.expect(c.arena.cached[p][page] == b, "pool %d: page %d caches block %d, not %d", p, page, b,
				c.arena.cached[p][page])
		}
	}
	c.worth(b)
	for _, tok := range c.arena.tokensOf(b) {
		if tok < 0 {
			c.refs[entry(tok)]++
		}
	}
	_, timed := c.arena.timers.of(b)
	if !c.arena.held(b) {
		c.expect(!timed && r.session == none && r.priority == 0 && r.stamp == 0,
			"ghost %d has attributes", b)
		return
	}
	c.heldSeen++
	c.expect(r.stamp > 0 && r.stamp <= c.arena.stamp,
		"block %d has stamp %d of %d", b, r.stamp, c.arena.stamp)
	c.expect(r.priority <= messages.MaxPriority, "block %d has priority %d", b, r.priority)
	if r.session != none {
		c.members[r.session]++
	}
	if timed {
		c.timed++
	}
}

// siblings checks the treap from b down, of the blocks behind a spot.
func (c *checker) siblings(at spot, b protocol.BlockID) {
	if b == protocol.NoBlock {
		return
	}
	r := &c.arena.blocks[b]
	c.expect(c.arena.before(b) == at && r.depth == c.arena.depthAt(at),
		"block %d of depth %d is behind %v but names %v", b, r.depth, at, c.arena.before(b))
	for s, y := range r.side {
		if y == protocol.NoBlock {
			continue
		}
		c.expect(weight(y) <= weight(b), "block %d weighs more than %d above it", y, b)
		c.expect(slices.Compare(c.arena.tokensOf(y), c.arena.tokensOf(b)) == 2*s-1,
			"block %d is on side %d of %d", y, s, b)
		c.siblings(at, y)
	}
	latest := r.latest
	c.arena.combine(b)
	c.expect(r.latest == latest, "block %d has latest %v, not %v", b, latest, r.latest)
	r.latest = latest // a check changes nothing
}

// totals compares what the walk has counted with the tables.
func (c *checker) totals() {
	for p, pages := range c.arena.cached {
		for page, b := range pages {
			_, held := c.pages[p][protocol.OnDevice(messages.PageID(page))]
			c.expect(held || b == protocol.NoBlock, "pool %d: page %d caches block %d, which is elsewhere",
				p, page, b)
		}
	}
	c.expect(c.heldSeen == c.arena.blocksHeld,
		"%d blocks are held, counted as %d", c.heldSeen, c.arena.blocksHeld)
	c.expect(c.seen+len(c.arena.free) == len(c.arena.blocks),
		"%d blocks reached and %d free of %d", c.seen, len(c.arena.free), len(c.arena.blocks))
	// Sequences hold symbols as well, and the tree does not know how many.
	c.arena.symbols.check(c, "symbol", c.refs)
	c.arena.sessions.check(c, "session", c.members)
	for n, refs := range c.members {
		c.expect(c.arena.sessions.refs[n] == refs, "session %d counts %d blocks, has %d", n,
			c.arena.sessions.refs[n], refs)
	}
	c.expect(c.timed == len(c.arena.timers.heap),
		"%d blocks have timers, %d run", c.timed, len(c.arena.timers.heap))
	for i := range c.arena.timers.heap {
		c.expect(c.arena.timers.slot[c.arena.timers.heap[i].block] == int32(i)+1,
			"timer %d is not found by its block", i)
	}
	i := heap.Misplaced(c.arena.timers.heap, timerOrder{&c.arena.timers})
	c.expect(i < 0, "timer %d is before the one above it", i)
}
