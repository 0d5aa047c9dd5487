package protocol

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Followed is a block of the tree, and Extra what its follower keeps with it. Only Extra changes.
// A block that has left the tree stays as long as another one names it as its parent.
type Followed[T any] struct {
	ID        BlockID             // the tree may have given it to another block since
	Parent    *Followed[T]        // the block before; nil: the prefix begins here
	Namespace *messages.Namespace // nil: the zero one
	Tokens    []messages.Token    // padding included
	Covers    []messages.Cover    // of the tokens; nil if no item covers any
	Extra     T
}

// Following holds the blocks of the tree by following its changes. If it begins after the tree, it
// knows neither the blocks that were there before nor those behind them.
type Following[T any] struct{ blocks []*Followed[T] } // by BlockID

// Of returns a block; nil: it is not known.
func (f *Following[T]) Of(b BlockID) *Followed[T] {
	if b < 0 || int(b) >= len(f.blocks) {
		return nil
	}
	return f.blocks[b]
}

// Enter adds the blocks of a change of kind BlocksEntered, and removes what the change brought from
// the front of rest. The blocks share the arrays of rest, which are freed with the last of them.
func (f *Following[T]) Enter(rest *Changes, c *Change) []Followed[T] {
	tokens, blocks := rest.Tokens[:c.Tokens], rest.Blocks[:c.Count]
	rest.Tokens, rest.Blocks = rest.Tokens[c.Tokens:], rest.Blocks[c.Count:]
	var covers []messages.Cover
	if c.Covered {
		covers, rest.Covers = rest.Covers[:c.Tokens], rest.Covers[c.Tokens:]
	}
	parent := f.Of(c.Parent)
	var namespace *messages.Namespace
	switch {
	case parent != nil:
		namespace = parent.Namespace
	case c.Parent != NoBlock:
		return nil
	default:
		if rest.Namespaces[0] != (messages.Namespace{}) {
			n := rest.Namespaces[0]
			namespace = &n
		}
		rest.Namespaces = rest.Namespaces[1:]
	}
	size, list := len(tokens)/int(c.Count), make([]Followed[T], c.Count)
	for i, id := range blocks {
		from, to, r := i*size, (i+1)*size, &list[i]
		*r = Followed[T]{ID: id, Parent: parent, Namespace: namespace, Tokens: tokens[from:to:to]}
		if covers != nil {
			r.Covers = Covering(covers[from:to:to])
		}
		for int(id) >= len(f.blocks) {
			f.blocks = append(f.blocks, nil)
		}
		f.blocks[id], parent = r, r
	}
	return list
}

// CoversOf spreads valid items over so many tokens; nil without items.
func CoversOf(items []messages.MultimodalItem, tokens int) []messages.Cover {
	if len(items) == 0 {
		return nil
	}
	covers := make([]messages.Cover, tokens)
	for _, item := range items {
		for i := range item.Length {
			covers[item.Start+i] = messages.Cover{Covered: true, Hash: item.Hash, Position: i}
		}
	}
	return covers
}

// Covering returns what covers tokens; nil if no item covers any.
func Covering(covers []messages.Cover) []messages.Cover {
	if slices.ContainsFunc(covers, func(c messages.Cover) bool { return c.Covered }) {
		return covers
	}
	return nil
}

// Leave removes the blocks of a change of kind BlocksLeft.
func (f *Following[T]) Leave(c *Change) {
	r := f.Of(c.Last)
	for n := c.Count; n > 0 && r != nil; n-- {
		f.blocks[r.ID] = nil
		r = r.Parent
	}
}

// All returns the blocks by BlockID; nil where the tree has none.
func (f *Following[T]) All() []*Followed[T] { return f.blocks }
