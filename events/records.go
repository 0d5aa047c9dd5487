package events

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// record is what events tell of one block. It never changes: events share its tokens. It lives as
// long as the tree has the block, or another record refers to it.
type record struct {
	id        protocol.BlockID    // the tree may have given it to another block since
	parent    *record             // the block before; nil: the prefix begins here
	namespace *messages.Namespace // of a prefix that begins here; nil: the zero one
	hash      kvevents.Hash
	tokens    []messages.Token // without padding
	covers    []messages.Cover // of tokens; nil if no item covers any
}

// enter makes records of new blocks. They share the memory of their tokens.
func (l *Log) enter(c *protocol.Change, m material) {
	var parent *record
	var before kvevents.Hash
	var namespace *messages.Namespace
	if c.Parent != protocol.NoBlock {
		parent = l.blocks[c.Parent]
		before = parent.hash
	} else {
		before = l.hasher.seed(m.namespace)
		if *m.namespace != (messages.Namespace{}) {
			ns := *m.namespace
			namespace = &ns
		}
	}
	tokens, covers := slices.Clone(m.tokens), slices.Clone(m.covers)
	size, list := len(tokens)/int(c.Count), make([]record, c.Count)
	for i, id := range m.blocks {
		from, to := i*size, (i+1)*size
		shown := max(from, min(to, len(tokens)-int(c.Padding)))
		r := &list[i]
		*r = record{id: id, parent: parent, namespace: namespace, tokens: tokens[from:shown]}
		var of []messages.Cover
		if covers != nil {
			of = covers[from:to]
			r.covers = covers[from:shown]
			if !slices.ContainsFunc(r.covers, func(c messages.Cover) bool { return c.Covered }) {
				r.covers = nil
			}
		}
		r.hash = l.hasher.block(before, tokens[from:to], of)
		parent, before, namespace = r, r.hash, nil
		for int(id) >= len(l.blocks) {
			l.blocks = append(l.blocks, nil)
		}
		l.blocks[id] = r
	}
}

// material is what entering blocks bring with them.
type material struct {
	blocks    []protocol.BlockID
	tokens    []messages.Token
	covers    []messages.Cover
	namespace *messages.Namespace // if the blocks begin a prefix
}

// leave forgets blocks that the tree does not have any more.
func (l *Log) leave(c *protocol.Change) {
	r := l.blocks[c.Last]
	for range c.Count {
		l.blocks[r.id] = nil
		r = r.parent
	}
}
