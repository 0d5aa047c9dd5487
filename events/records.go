package events

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// record is what events tell of one block: events share its tokens.
type record = protocol.Followed[named]

// named is the name of a block, and how many of its tokens readers see, which are not padding.
type named struct {
	hash  kvevents.Hash
	shown int
}

// enter makes records of new blocks.
func (l *Log) enter(rest *protocol.Changes, c *protocol.Change) {
	run, shown := l.blocks.Enter(rest, c), int(c.Tokens-c.Padding)
	for i := range run {
		r := &run[i]
		r.Extra.hash = l.hasher.block(l.before(r), r.Tokens, r.Covers)
		r.Extra.shown = max(0, min(len(r.Tokens), shown))
		r.Covers = protocol.Covering(r.Covers[:min(len(r.Covers), r.Extra.shown)])
		shown -= len(r.Tokens)
	}
}

// before is the hash that stands before a block.
func (l *Log) before(r *record) kvevents.Hash {
	switch {
	case r.Parent != nil:
		return r.Parent.Extra.hash
	case r.Namespace != nil:
		return l.hasher.seed(r.Namespace)
	default:
		return l.hasher.seed(&messages.Namespace{})
	}
}
