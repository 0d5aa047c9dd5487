// Package blockkeys knows blocks of the tree by what the tree tells of them, so that pages can
// be named in a store. A block's key is a hash over all tokens of its prefix; the index computes
// it from the key of the block before, and only for blocks that are saved.
package blockkeys

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// Index knows the blocks that are in the tree, as the tree has told.
// It is a core: one goroutine at a time, no lock. The store's actor has one, and forgets it
// when it fails: an index that begins later than the tree does not know the blocks before.
type Index struct {
	// fingerprint is of the pages, and the beginning of every key.
	fingerprint    stores.Fingerprint
	tokensPerBlock int
	// entries grows with the largest id; the tree gives ids of blocks that have left out again.
	entries []entry // by BlockID
	// spaces has what the keys of a namespace begin with, which costs a hash or an HMAC.
	spaces map[messages.Namespace]*stores.Space
}

// entry is one block, if it is known.
// tokens and covers are parts of the slices of the change that brought the block, so that
// a block costs no memory of its own for them.
type entry struct {
	known     bool
	parent    protocol.BlockID
	namespace messages.Namespace
	tokens    []messages.Token
	covers    []messages.Cover
	// key is valid if hasKey: most blocks are never saved, and their keys are not computed.
	key    stores.BlockKey
	hasKey bool
}

// Described is a block that is to be saved. Its tokens and covers are the index's own slices:
// the caller reads them and keeps them, and changes nothing.
type Described struct {
	Namespace messages.Namespace
	Key       stores.BlockKey
	Block     stores.Block // without its pool
}

// New returns the index of an empty tree.
func New(f stores.Fingerprint, tokensPerBlock int) *Index {
	return &Index{
		fingerprint: f, tokensPerBlock: tokensPerBlock, spaces: map[messages.Namespace]*stores.Space{},
	}
}

// Copy copies from changes what an index needs, so that the record can be used again.
// The tree fills its record again as soon as it is back; the index keeps slices for as long
// as blocks are in the tree.
func Copy(c *protocol.Changes) *protocol.Changes {
	copied := &protocol.Changes{
		Blocks: slices.Clone(c.Blocks), Tokens: slices.Clone(c.Tokens), Covers: slices.Clone(c.Covers),
		Namespaces: slices.Clone(c.Namespaces),
	}
	for _, x := range c.List {
		// Where pools keep blocks does not matter to their keys.
		if x.Kind == protocol.BlocksEntered || x.Kind == protocol.BlocksLeft {
			copied.List = append(copied.List, x)
		}
	}
	return copied
}

// Apply follows changes of the tree. The index keeps the slices.
// The lists of a change lie one behind the other: each entry of List takes its part from
// the front of them.
func (x *Index) Apply(c *protocol.Changes) {
	blocks, tokens, covers, namespaces := c.Blocks, c.Tokens, c.Covers, c.Namespaces
	for i := range c.List {
		e := &c.List[i]
		switch e.Kind {
		case protocol.BlocksEntered:
			// The capacity of each part ends with it: no append to the tokens of one run can reach
			// those of the next. The arrays of a change are freed when the last of its blocks has
			// left.
			n, t := int(e.Count), int(e.Tokens)
			// Covers are there only for runs in which an item covers a token.
			var covered []messages.Cover
			if e.Covered {
				covered, covers = covers[:t:t], covers[t:]
			}
			var namespace messages.Namespace
			switch {
			// Only the first block of a prefix says its namespace; the others have their parent's.
			case e.Parent == protocol.NoBlock:
				namespace, namespaces = namespaces[0], namespaces[1:]
			case int(e.Parent) < len(x.entries):
				namespace = x.entries[e.Parent].namespace
			}
			x.enter(blocks[:n], tokens[:t:t], covered, e.Parent, namespace)
			blocks, tokens = blocks[n:], tokens[t:]
		case protocol.BlocksLeft:
			x.leave(e.Last, int(e.Count))
		}
	}
}

// enter adds a run of blocks, each the parent of the next; the last may be stored in part.
func (x *Index) enter(
	blocks []protocol.BlockID, tokens []messages.Token, covers []messages.Cover,
	parent protocol.BlockID, n messages.Namespace,
) {
	for i, b := range blocks {
		from, to := i*x.tokensPerBlock, min((i+1)*x.tokensPerBlock, len(tokens))
		e := entry{known: true, parent: parent, namespace: n, tokens: tokens[from:to:to]}
		// A block without a covered token has no covers, whatever its run has.
		if covers != nil && slices.ContainsFunc(covers[from:to],
			func(c messages.Cover) bool { return c.Covered }) {
			e.covers = covers[from:to:to]
		}
		for int(b) >= len(x.entries) {
			x.entries = append(x.entries, entry{})
		}
		// An id may have had another block before. Its key goes with the old entry: a key that
		// outlived its block would name the bytes of this one by other tokens.
		x.entries[b] = e
		parent = b
	}
}

// leave removes consecutive blocks of a prefix.
func (x *Index) leave(last protocol.BlockID, n int) {
	// Those before a block that is not known are not known either, for they entered before.
	for b := last; n > 0 && x.knows(b); n-- {
		parent := x.entries[b].parent
		x.entries[b] = entry{}
		b = parent
	}
}

// knows tells whether a block has entered and not left since the index began.
func (x *Index) knows(b protocol.BlockID) bool {
	return b >= 0 && int(b) < len(x.entries) && x.entries[b].known
}

// Partial tells whether a block is stored in part.
func (x *Index) Partial(b protocol.BlockID) bool {
	n := 0
	if x.knows(b) {
		n = len(x.entries[b].tokens)
	}
	return 0 < n && n < x.tokensPerBlock
}

// Describe returns what an object says of a block. ok is false for a block that is
// unknown or stored in part.
// The cost is one hash for each block of the prefix that has no key yet, so all saves of a
// prefix together hash each of its blocks once.
func (x *Index) Describe(b protocol.BlockID) (d Described, ok bool) {
	if int(b) >= len(x.entries) || len(x.entries[b].tokens) < x.tokensPerBlock {
		return d, false
	}
	var path []protocol.BlockID // from b up to the first that has a key
	at := b
	for ; at != protocol.NoBlock && !(x.knows(at) && x.entries[at].hasKey); at = x.entries[at].parent {
		if !x.knows(at) {
			return d, false // an index that began later than the tree
		}
		path = append(path, at)
	}
	// All blocks of a prefix are in one namespace.
	space := x.space(x.entries[b].namespace)
	// From the block nearest to the root on, since each key needs the one before.
	for _, n := range slices.Backward(path) {
		e := &x.entries[n]
		e.key, e.hasKey = space.Next(x.keyBefore(e, space), e.tokens, e.covers), true
	}
	e := &x.entries[b]
	return Described{
		Namespace: e.namespace, Key: e.key,
		Block: stores.Block{Parent: x.keyBefore(e, space), Tokens: e.tokens, Covers: e.covers},
	}, true
}

// keyBefore is the key of the block before one whose own key is there or about to be.
func (x *Index) keyBefore(e *entry, space *stores.Space) stores.BlockKey {
	if e.parent == protocol.NoBlock {
		return space.Root()
	}
	return x.entries[e.parent].key
}

// maxSpaces bounds the namespaces whose keys are kept at hand.
// Salts come from clients. Beyond the bound all are forgotten at once, which costs the next
// save of each a derivation.
const maxSpaces = 1024

// space returns what the keys of a namespace begin with.
func (x *Index) space(n messages.Namespace) *stores.Space {
	s, ok := x.spaces[n]
	if !ok {
		if len(x.spaces) >= maxSpaces {
			clear(x.spaces)
		}
		s = stores.NewSpace(x.fingerprint, n, nil)
		x.spaces[n] = s
	}
	return s
}
