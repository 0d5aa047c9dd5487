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
	blocks         protocol.Following[key]
}

// key is a block's key, if it is known: most blocks are never saved, and their keys are not
// computed.
type key struct {
	stores.BlockKey
	known bool
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
	return &Index{fingerprint: f, tokensPerBlock: tokensPerBlock}
}

// Apply follows changes of the tree. The index keeps slices of them. Where pools keep blocks does
// not matter to their keys.
func (x *Index) Apply(c *protocol.Changes) {
	rest := *c
	for i := range c.List {
		switch e := &c.List[i]; e.Kind {
		case protocol.BlocksEntered:
			x.blocks.Enter(&rest, e)
		case protocol.BlocksLeft:
			x.blocks.Leave(e)
		}
	}
}

// Partial tells whether a block is stored in part.
func (x *Index) Partial(b protocol.BlockID) bool {
	r := x.blocks.Of(b)
	return r != nil && len(r.Tokens) < x.tokensPerBlock
}

// Describe returns what an object says of a block. ok is false for a block that is
// unknown or stored in part.
// The cost is one hash for each block of the prefix that has no key yet, so all saves of a
// prefix together hash each of its blocks once, and one or a few of the namespace.
func (x *Index) Describe(b protocol.BlockID) (d Described, ok bool) {
	r := x.blocks.Of(b)
	if r == nil || x.Partial(b) {
		return d, false
	}
	if r.Namespace != nil {
		d.Namespace = *r.Namespace
	}
	space := stores.NewSpace(x.fingerprint, d.Namespace, nil)
	var path []*protocol.Followed[key] // from b up to the first that has a key
	for at := r; at != nil && !at.Extra.known; at = at.Parent {
		path = append(path, at)
	}
	// From the block nearest to the root on, since each key needs the one before.
	for _, at := range slices.Backward(path) {
		at.Extra = key{space.Next(before(at, space), at.Tokens, at.Covers), true}
	}
	d.Key = r.Extra.BlockKey
	d.Block = stores.Block{Parent: before(r, space), Tokens: r.Tokens, Covers: r.Covers}
	return d, true
}

// before is the key of the block before one whose own key is there or about to be.
func before(r *protocol.Followed[key], space *stores.Space) stores.BlockKey {
	if r.Parent == nil {
		return space.Root()
	}
	return r.Parent.Extra.BlockKey
}
