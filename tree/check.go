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
	blocks   int // seen
	heldSeen int
	symbols  []int32
	sessions []int32
	timers   int
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
	c := checker{Tree: t,
		symbols: make([]int32, len(t.base.symbols.entries)), sessions: make([]int32, len(t.base.sessions.names)),
	}
	for range t.base.arena.pools {
		c.pages = append(c.pages, map[protocol.Location]protocol.BlockID{})
	}
	nodes := 0
	for i, r := range t.base.roots {
		if r.node == none {
			continue
		}
		got, ok := t.base.byName[class(t.base.arena.nodes[r.node].cross)][r.namespace]
		c.expect(ok && got == int32(i) && t.base.arena.nodes[r.node].root == int32(i), "root %d is not found by its namespace", i)
		c.expect(t.base.elements[r.node].children != none, "root %d is empty", i)
		c.expect(t.base.arena.nodes[r.node].cross == (r.input > 0), "root %d has an encoder's input of %d tokens", i, r.input)
	}
	for x := range t.base.walkAll() {
		nodes++
		c.node(x)
	}
	c.arrayPool(&t.base.arena.pool)
	c.arrayPool(&t.base.arena.numbers)
	c.sharedArrays()
	c.expect(nodes+len(t.base.arena.freeNodes) == len(t.base.arena.nodes), "%d nodes reached and %d free of %d", nodes, len(t.base.arena.freeNodes), len(t.base.arena.nodes))
	c.totals()
	return errors.Join(c.problems...)
}

// node checks one node, its blocks, and the treap of its children.
func (c *checker) node(x int32) {
	nd, children := &c.base.arena.nodes[x], c.base.elements[x].children
	for _, y := range c.base.childrenOf(nil, x) {
		c.expect(c.base.parentOf(y) == x, "node %d is a child of %d but names %d", y, x, c.base.parentOf(y))
		c.expect(c.base.arena.nodes[y].cross == nd.cross, "node %d, a child of %d, is not of the same pools", y, x)
		c.expect(c.base.arena.nodes[y].depth == c.base.arena.end(x), "node %d begins at %d behind %d", y, c.base.arena.nodes[y].depth, c.base.arena.end(x))
	}
	c.treap(children)
	if nd.root != none {
		c.expect(nd.n == 0, "root node %d has %d blocks", x, nd.n)
		return
	}
	c.expect(nd.n > 0, "node %d is empty", x)
	c.expect(nd.part == 0 || nd.n == 1 && children == none && int(nd.part) < c.base.arena.tpb, "node %d, stored in part, has %d blocks or children", x, nd.n)
	if y := children; y == none {
		c.expect(c.base.arena.held(x, nd.n-1), "node %d ends in a ghost with nothing behind it", x)
	} else if c.base.onlyChild(x) == y {
		c.expect(!c.base.arena.joinable(x, y), "node %d need not be apart from its only child %d", x, y)
	}
	counts := make([]int32, 2*len(c.base.arena.pools))
	for i := range nd.n {
		c.block(x, i)
		for p := range c.base.arena.pools {
			if _, tier, ok := c.base.arena.locations(x, p)[i].Page(); ok {
				counts[2*p+int(tier)]++
			}
		}
	}
	c.expect(slices.Equal(counts, c.base.arena.countsOf(x)), "node %d counts %v, has %v", x, c.base.arena.countsOf(x), counts)
}

// arrayPool checks that the arrays in the pool have the room that is counted, and that
// none of them is in use.
func (c *checker) arrayPool(pool *arrayPool) {
	pooled := map[*int32]bool{}
	for a, room := range pool.All() {
		c.expect(int(a.room) == room && a.off == 0, "arrays for %d blocks, begun at %d, are in the pool as for %d", a.room, a.off, room)
		c.expect(!pooled[a.numbers], "arrays for %d blocks are in the pool twice", a.room)
		pooled[a.numbers] = true
	}
	err := pool.Check()
	c.expect(err == nil, "pool of arrays: %v", err)
	for x := range c.base.arena.nodes {
		if a := &c.base.arena.nodes[x].arrays; a.room > 0 {
			c.expect(!pooled[a.numbers], "the arrays of node %d are in the pool", x)
		}
	}
}

// sharedArrays checks that the arrays in the table are in use, and how much.
func (c *checker) sharedArrays() {
	s, used, sparse, size := &c.base.arena.shared, make([]int, len(c.base.arena.shared.list)), 0, 0
	for x := range c.base.arena.nodes {
		if nd := &c.base.arena.nodes[x]; nd.shared != noArray {
			used[nd.shared] += int(nd.n) * c.base.arena.tpb
			c.expect(nd.part == 0 && nd.tokens == s.start(nd.shared), "node %d is not in its shared array", x)
		}
	}
	for i := range s.list {
		a := &s.list[i]
		c.expect(a.used == used[i], "of shared array %d %d tokens are used, counted as %d", i, used[i], a.used)
		c.expect((a.array == nil) == (used[i] == 0), "shared array %d is in the table or not, and %d tokens are used", i, used[i])
		if a.array != nil {
			c.expect(s.find(a.array) == int32(i), "shared array %d is not found", i)
			sparse += a.unused()
			size += len(a.array.Tokens)
		}
	}
	free := 0
	for i := range s.list[1:] {
		if s.list[1+i].array == nil {
			free++
		}
	}
	c.expect(free == len(s.free), "%d shared arrays are free, listed are %d", free, len(s.free))
	c.expect(size == s.size, "shared arrays have %d tokens, counted as %d", size, s.size)
	c.expect(sparse == s.sparse && sparse <= s.used/sparseShare+s.allowed, "shared arrays keep %d tokens of no use, counted as %d of %d", sparse, s.sparse, s.used)
}

// block checks block i of node x.
func (c *checker) block(x, i int32) {
	b := c.base.arena.ids(x)[i]
	c.blocks++
	s := &c.Tree.base.blocks
	c.expect(c.base.arena.index.node[b] == x && c.base.arena.index.low[b] == uint16(c.base.arena.nodes[x].depth+i), "block %d is at node %d depth %d, not at node %d low depth %d", b, x, c.base.arena.nodes[x].depth+i, c.base.arena.index.node[b], c.base.arena.index.low[b])
	for p := range c.base.arena.pools {
		l := c.base.arena.locations(x, p)[i]
		if l == protocol.Nowhere {
			continue
		}
		c.expect(c.base.arena.pools[p].Cross == c.base.arena.nodes[x].cross, "block %d is in pool %d, which is not of its kind", b, p)
		other, twice := c.pages[p][l]
		c.expect(!twice, "blocks %d and %d are both at %d in pool %d", other, b, l, p)
		// Invariant 7: two blocks with one page would read each other's contents.
		c.pages[p][l] = b
	}
	for _, tok := range c.base.arena.tokensAt(x, i) {
		if tok < 0 {
			c.symbols[entry(tok)]++
		}
	}
	_, timed := c.Tree.base.timers.of(b)
	if !c.base.arena.held(x, i) {
		c.expect(!timed && s.sessionOf(b) == none && s.priority[b] == 0 && s.stamp[b] == 0, "ghost %d has attributes", b)
		return
	}
	c.heldSeen++
	c.expect(s.stamp[b] > 0 && s.stamp[b] <= c.base.stamp, "block %d has stamp %d of %d", b, s.stamp[b], c.base.stamp)
	c.expect(s.priority[b] <= messages.MaxPriority, "block %d has priority %d", b, s.priority[b])
	if n := s.sessionOf(b); n != none {
		c.sessions[n]++
	}
	c.expect(!timed || c.Tree.base.timers.watched(b) || !c.base.recording && !c.base.arena.inHostMemory(b), "block %d has a timer and is not watched", b)
	if c.Tree.base.timers.watched(b) {
		c.timers++
	}
}

// treap checks the element x and those below it.
func (c *checker) treap(x int32) {
	if x == none {
		return
	}
	e := &c.base.elements[x]
	c.expect(e.head == c.base.first(x)[0], "element %d has head %d, its first token is %d", x, e.head, c.base.first(x)[0])
	for s, y := range e.side {
		if y == none {
			continue
		}
		c.expect(c.base.elements[y].above == x, "element %d is below %d but names %d", y, x, c.base.elements[y].above)
		c.expect(c.base.elements[y].weight <= e.weight, "element %d weighs more than %d above it", y, x)
		order := slices.Compare(c.base.first(y), c.base.first(x))
		c.expect(order == 2*s-1, "element %d is on side %d of %d", y, s, x)
		c.treap(y)
	}
	own, latest := e.own, e.latest
	c.base.refresh(x)
	c.expect(e.own == own, "element %d has a first block of %v, not %v", x, own, e.own)
	c.expect(e.latest == latest, "element %d has latest %v, not %v", x, latest, e.latest)
	e.own, e.latest = own, latest // a check changes nothing
}

// totals compares what the walk has counted with the tables.
func (c *checker) totals() {
	t := c.Tree
	c.expect(c.heldSeen == t.base.blocksHeld, "%d blocks are held, counted as %d", c.heldSeen, t.base.blocksHeld)
	c.expect(c.blocks+len(t.base.arena.index.free) == len(t.base.arena.index.node), "%d blocks reached and %d free of %d", c.blocks, len(t.base.arena.index.free), len(t.base.arena.index.node))
	for n, refs := range c.symbols {
		// Sequences hold references as well, and the tree does not know how many.
		c.expect(t.base.symbols.refs[n] >= refs, "symbol %d has %d references, blocks hold %d", n, t.base.symbols.refs[n], refs)
		if t.base.symbols.refs[n] > 0 {
			c.expect(t.base.symbols.index[t.base.symbols.entries[n]] == int32(n), "symbol %d is not found", n)
		}
	}
	c.expect(len(t.base.symbols.index)+len(t.base.symbols.free) == len(t.base.symbols.entries), "%d symbols and %d free of %d", len(t.base.symbols.index), len(t.base.symbols.free), len(t.base.symbols.entries))
	for n, refs := range c.sessions {
		c.expect(refs > 0 || t.base.sessions.names[n] == "", "session %q has no blocks", t.base.sessions.names[n])
		c.expect(t.base.sessions.refs[n] == refs, "session %q counts %d blocks, has %d", t.base.sessions.names[n], t.base.sessions.refs[n], refs)
	}
	c.expect(len(t.base.sessions.index)+len(t.base.sessions.free) == len(t.base.sessions.names), "%d sessions and %d free of %d", len(t.base.sessions.index), len(t.base.sessions.free), len(t.base.sessions.names))
	c.expect(c.timers == len(t.base.timers.heap), "%d blocks are watched, %d timers run", c.timers, len(t.base.timers.heap))
	for i := range t.base.timers.heap {
		c.expect(t.base.timers.slot[t.base.timers.heap[i].block] == int32(i)+1, "timer %d is not found by its block", i)
	}
	i := heap.Misplaced(t.base.timers.heap, timerOrder{&t.base.timers})
	c.expect(i < 0, "timer %d is before the one above it", i)
}
