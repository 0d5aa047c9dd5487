package tree

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// none is the absence of a node, a session or a root.
const none int32 = -1

// PoolShape is what the tree must know of a pool: what a position attends to. The
// fields are those of windows.Reach, which answers for them.
type PoolShape struct {
	Window int // tokens; 0: no window
	Sink   int // tokens at the start that stay attended to; 0 without a window
	Chunk  int // tokens of a chunk of attention; 0: none
	// Cross marks a cross pool: its pages are matched by the input of the encoder,
	// those of all other pools by the tokens of the decoder. Cross pools come last.
	Cross bool
	// State marks a state pool: its pages hold the states of recurrent layers after
	// the last token of a block, its checkpoint. State pools come after the attention
	// pools and before cross pools.
	State bool
}

// reach says which tokens a position attends to.
func (s *PoolShape) reach() windows.Reach {
	return windows.Reach{Window: s.Window, Sink: s.Sink, Chunk: s.Chunk}
}

// full reports whether a position attends to everything before it.
func (s *PoolShape) full() bool { return s.reach().Full() }

// Config is the shape of a tree.
type Config struct {
	TokensPerBlock int         // ≥ 1
	Pools          []PoolShape // by PoolID
	Blocks         int         // how many to have room for from the start, beside their tokens
	Events         bool        // record changes for the event log
	Host           bool        // there is host memory: answer with HostForget
}

// Tree is the radix tree of all pools. One goroutine at a time uses it.
type Tree struct {
	tpb        int
	pools      []PoolShape
	tokenPools int // pools before it are self pools that hold tokens, those up to selfPools hold states
	selfPools  int // pools before it are self pools, the others cross pools
	host       bool
	recording  bool

	// nodes, counts, blocks and roots are indexed by small numbers instead of linked
	// by pointers: the collector has two pointers to follow for each node and none
	// for each block, and a number stays valid when the array moves. A pointer into
	// nodes is not valid after newNode.
	nodes     []node
	counts    []int32 // [node][pool][tier]: blocks of the run that lie there
	freeNodes []int32
	roots     []root
	freeRoots []int32
	// byName[class][roots[i].namespace] is i for each root in use, and no other entry
	// exists. A root in use has children: prune removes the root with its last child.
	byName [2]map[messages.Namespace]int32 // index in roots, of self and of cross pools

	pool   arrayPool
	blocks blocks
	// blocksHeld is the number of blocks of which held is true, between messages. A
	// store counts a block when it gets its attributes, before its first page.
	blocksHeld int // blocks that some pool holds
	symbols    symbols
	sessions   sessions
	timers     timers
	// A stamp that is given is never 0, since 0 means that a block does not count.
	// Only blocks of one claim or one store share a stamp.
	stamp uint32 // of the last claim or store
	// generation is at least that of every block, so a Cursor made now is followed by
	// no block that is made later.
	generation  uint64 // runs that were made so far
	randomState uint64 // state of the treaps' generator

	// moved counts the blocks that splits and joins have copied; the tests hold
	// its growth against n log n.
	moved int

	// The scratch below is kept only for its memory: every user overwrites it, and
	// nothing reads it in a later message.
	log       journal        // effects and events of the message under way
	path      []segment      // scratch of match and store
	clean     []int32        // scratch of match, by pool
	retention retentionCover // scratch of claims and stores
	plain     []bool         // scratch of stores: no pool held the segment of the path, all is of one priority
	stack     []int32        // scratch of forget: nodes
	toForget  []protocol.BlockID
}

// root is where the prefixes of one namespace begin.
//
// The root of cross pools has the one prefix that there is in its namespace: the
// input of the encoder, which the namespace names, padded to whole blocks.
type root struct {
	namespace messages.Namespace
	// node is none while the root is free.
	node  int32
	input int32 // tokens of the encoder's input without the padding; 0 for self pools
}

// New makes an empty tree.
func New(c Config) *Tree {
	if c.TokensPerBlock < 1 || len(c.Pools) == 0 {
		// A wrong shape is an error of the engine, not of the host, whose
		// configuration has been checked before the engine makes a tree. So New
		// panics and returns no error.
		panic("tree: a tree needs a block size and a pool")
	}
	t := &Tree{
		tpb:         c.TokensPerBlock,
		pools:       slices.Clone(c.Pools),
		host:        c.Host,
		recording:   c.Events,
		byName:      [2]map[messages.Namespace]int32{{}, {}},
		symbols:     symbols{index: map[symbol]int32{}},
		sessions:    sessions{index: map[string]int32{}},
		clean:       make([]int32, len(c.Pools)),
		randomState: 1,
	}
	// The kinds of pools must be contiguous, so that "the pools of a kind" is a range
	// of indices everywhere:
	//
	//	0 … tokenPools          selfPools            len(pools)
	//	│ self, hold tokens │ self, hold states │ cross │
	for t.selfPools < len(c.Pools) && !c.Pools[t.selfPools].Cross {
		t.selfPools++
		if !c.Pools[t.selfPools-1].State {
			t.tokenPools = t.selfPools
		}
	}
	for p := range t.tokenPools {
		if c.Pools[p].State {
			panic(fmt.Sprintf("tree: pool %d holds states and comes before pool %d, which holds tokens", p, t.tokenPools-1))
		}
	}
	for p := range c.Pools[t.selfPools:] {
		if !c.Pools[t.selfPools+p].Cross {
			panic(fmt.Sprintf("tree: pool %d, a self pool, comes after the cross pool %d", t.selfPools+p, t.selfPools))
		}
	}
	t.blocks.reserve(c.Blocks)
	t.log.changes = &protocol.Changes{}
	return t
}

// poolsOf returns the range [first, end) of the pools whose pages hold tokens: of the
// self pools, or of the cross pools. State pools are in neither range: most blocks
// have no checkpoint, so a candidate that needed one would hardly ever be found.
func (t *Tree) poolsOf(cross bool) (first, end int) {
	if cross {
		return t.selfPools, len(t.pools)
	}
	return 0, t.tokenPools
}

// recurrent tells whether there are state pools.
func (t *Tree) recurrent() bool { return t.tokenPools < t.selfPools }

// class returns the index in byName of self and of cross pools.
func class(cross bool) int {
	if cross {
		return 1
	}
	return 0
}

// Blocks returns the number of blocks that some pool holds.
func (t *Tree) Blocks() int { return t.blocksHeld }

// rootOf returns the root node of a namespace for self or cross pools, or none.
func (t *Tree) rootOf(ns messages.Namespace, cross bool) int32 {
	if i, ok := t.byName[class(cross)][ns]; ok {
		return t.roots[i].node
	}
	return none
}

// makeRoot returns the root node of what s stores, and makes it if there is none. A
// caller makes a root only if it then stores at least one block below it, since
// nothing removes a root that never had a child.
func (t *Tree) makeRoot(s *protocol.StoreItem) int32 {
	if x := t.rootOf(s.Namespace, s.Cross); x != none {
		return x
	}
	i := int32(len(t.roots))
	if n := len(t.freeRoots); n > 0 {
		i, t.freeRoots = t.freeRoots[n-1], t.freeRoots[:n-1]
	} else {
		t.roots = append(t.roots, root{})
	}
	x := t.newNode()
	t.nodes[x].root = i
	t.nodes[x].cross = s.Cross
	t.roots[i] = root{namespace: s.Namespace, node: x}
	// The input is that of the root's first store. Later stores name the same input,
	// because the namespace has its key.
	if s.Cross {
		t.roots[i].input = int32(s.Prompt)
	}
	t.byName[class(s.Cross)][s.Namespace] = i
	return x
}

// removeRoot removes the root node x, which has no children. It clears the entry of
// the root, so that the strings of the namespace can be collected.
func (t *Tree) removeRoot(x int32) {
	i := t.nodes[x].root
	delete(t.byName[class(t.nodes[x].cross)], t.roots[i].namespace)
	t.roots[i] = root{node: none}
	t.freeRoots = append(t.freeRoots, i)
	t.freeNode(x)
}

// nextStamp returns a stamp that is later than all before it.
func (t *Tree) nextStamp() uint32 {
	if t.stamp == math.MaxUint32 {
		t.restamp()
	}
	t.stamp++
	return t.stamp
}

// restamp numbers the stamps in use from 1, in their order, so that 32 bits never run
// out. It costs a sort of all blocks once in 2³² claims and stores, which is nothing
// for each of them; 64-bit stamps would cost 4 bytes for each block all the time.
// Blocks with equal stamps stay equal, so every choice among siblings comes out as
// before.
func (t *Tree) restamp() {
	used := make([]uint32, 0, t.blocksHeld)
	for b, x := range t.blocks.node {
		if x != none {
			used = append(used, t.blocks.stamp[b])
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if len(used) > 0 && used[0] == 0 {
		used = used[1:]
	}
	// A latest is the stamp of some held block, so the search always finds it. Ghosts
	// keep their last stamp and are ranked too; the stamp counts for nothing.
	rank := func(s uint32) uint32 {
		if s == 0 {
			return 0
		}
		i, _ := slices.BinarySearch(used, s)
		return uint32(i) + 1
	}
	for b, x := range t.blocks.node {
		if x != none {
			t.blocks.stamp[b] = rank(t.blocks.stamp[b])
		}
	}
	for x := range t.nodes {
		nd := &t.nodes[x]
		nd.latest[candidates], nd.latest[holders] = rank(nd.latest[candidates]), rank(nd.latest[holders])
	}
	t.stamp = uint32(len(used))
}
