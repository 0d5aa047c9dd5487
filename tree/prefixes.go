package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// prefixes knows what the tokens of a prompt mean: where the prefixes of its namespace
// begin, and which symbols stand for tokens that multimodal items cover.
type prefixes struct {
	siblings
	roots     []root
	freeRoots []int32
	// byName[class][roots[i].namespace] is i for each root in use, and no other entry
	// exists. A root in use has children: prune removes the root with its last child.
	byName  [2]map[messages.Namespace]int32 // index in roots, of self and of cross pools
	symbols symbols
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

// class returns the index in byName of self and of cross pools.
func class(cross bool) int {
	if cross {
		return 1
	}
	return 0
}

// rootOf returns the root node of a namespace for self or cross pools, or none.
func (t *prefixes) rootOf(ns messages.Namespace, cross bool) int32 {
	if i, ok := t.byName[class(cross)][ns]; ok {
		return t.roots[i].node
	}
	return none
}

// makeRoot returns the root node of what s stores, and makes it if there is none. A
// caller makes a root only if it then stores at least one block below it, since
// nothing removes a root that never had a child.
func (t *prefixes) makeRoot(s *protocol.StoreItem) int32 {
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
	t.arena.nodes[x].root = i
	t.arena.nodes[x].cross = s.Cross
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
func (t *prefixes) removeRoot(x int32) {
	i := t.arena.nodes[x].root
	delete(t.byName[class(t.arena.nodes[x].cross)], t.roots[i].namespace)
	t.roots[i] = root{node: none}
	t.freeRoots = append(t.freeRoots, i)
	t.freeNode(x)
}

// rootNode returns the root node above x, perhaps x itself.
func (t *prefixes) rootNode(x int32) int32 {
	for t.arena.nodes[x].root == none {
		x = t.parentOf(x)
	}
	return x
}

// padding returns how many tokens at the end of block i of node x are none of the
// host's: those behind the end of an encoder's input.
func (t *prefixes) padding(x, i int32) int32 {
	// Only inputs of encoders are padded. For all others the walk to the root is left
	// out.
	if !t.arena.nodes[x].cross {
		return 0
	}
	end := (t.arena.nodes[x].depth + i + 1) * int32(t.arena.tpb)
	return max(0, end-t.roots[t.arena.nodes[t.rootNode(x)].root].input)
}

// walkAll visits all nodes, namespace by namespace, parents before children, children
// in token order. The tree must not change during the walk. The order is the same in
// each run, because no map is ranged over.
func (t *prefixes) walkAll() func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		var stack []int32
		for i := range t.roots {
			if t.roots[i].node == none {
				continue
			}
			stack = append(stack[:0], t.roots[i].node)
			for n := len(stack); n > 0; n = len(stack) {
				x := stack[n-1]
				stack = stack[:n-1]
				if !yield(x) {
					return
				}
				stack = t.childrenOf(stack, x)
			}
		}
	}
}
