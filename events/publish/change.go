package publish

import (
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// ChangeKind is what a change does.
type ChangeKind uint8

// The kinds of changes.
const (
	Stored          ChangeKind = iota // Blocks are published: each is the parent of the next
	Removed                           // Blocks are not published any more, children first
	TierChanged                       // the one block has moved from OldTier to Tier
	PriorityChanged                   // the one block had OldPriority
	Cleared                           // the engine has forgotten everything; no block is published
	Created                           // the engine's pools have the sizes Pages
)

// Change is one change of the published blocks.
// It is a value: encoders read it as often as there are formats, and none of them changes
// it.
type Change struct {
	// Which fields are set follows from Kind.
	Kind   ChangeKind
	Blocks []Block
	Tier   messages.Tier // of all blocks; for Removed the one they were in

	// Parent names the block before the first one. A block without a parent begins a
	// prompt. Neither is set for Removed, nor is Namespace.
	Parent    uint64
	HasParent bool
	Namespace messages.Namespace

	// OldTier belongs to TierChanged, whose new tier is Tier; OldPriority belongs to
	// PriorityChanged, whose new priority is that of the block. Pages belong to Created.
	OldTier     messages.Tier
	OldPriority messages.Priority
	Pages       events.PoolPages

	// last is the block of the last of Blocks: appendStored looks for its children.
	last *block
}

// Block is a published block in a change.
// Tokens and Covers are slices of the view's memory, which is not written to again: a
// reader may keep them, and must not write to them.
type Block struct {
	Name     uint64        // on the wire
	Hash     kvevents.Hash // in the engine's events
	Tokens   []messages.Token
	Covers   []messages.Cover // by token; nil without an item
	Priority messages.Priority
	Salted   bool // its namespace has a salt
}

// out returns the block as a change has it.
func (b *block) out() Block {
	return Block{Name: b.name, Hash: b.hash, Tokens: b.tokens, Covers: b.covers, Priority: b.priority,
		Salted: b.salted()}
}

// changeOf makes a change of one block.
func (v *View) changeOf(k ChangeKind, b *block) Change {
	return newChange(k, v.root, b)
}

// newChange is changeOf for callers that have the root and no view. A parent is named by
// its name on the wire, which it has, as it is published.
func newChange(k ChangeKind, root, b *block) Change {
	c := Change{Kind: k, Tier: b.tier, Blocks: []Block{b.out()}, last: b}
	if b.parent != root {
		c.Parent, c.HasParent = b.parent.name, true
	}
	if b.namespace != nil {
		c.Namespace = *b.namespace
	}
	return c
}

// appendStored adds a published block to the last change if it follows there, and as
// a change of its own otherwise.
func appendStored(out []Change, root, b *block) []Change {
	// A run of blocks in one change names one parent, where a change for each block would
	// name a parent for each. Tokens of a run are one list on the wire.
	if n := len(out); n > 0 {
		if c := &out[n-1]; c.Kind == Stored && c.last == b.parent && c.Tier == b.tier {
			c.Blocks, c.last = append(c.Blocks, b.out()), b
			return out
		}
	}
	return append(out, newChange(Stored, root, b))
}

// appendRemoved adds a block that is withdrawn to the last change, if that removes
// blocks of the same tier. Readers that count stores by tier take the tier from the
// event, so one change has one.
func appendRemoved(out []Change, b *block) []Change {
	if n := len(out); n > 0 {
		if c := &out[n-1]; c.Kind == Removed && c.Tier == b.tier {
			c.Blocks = append(c.Blocks, b.out())
			return out
		}
	}
	return append(out, Change{Kind: Removed, Tier: b.tier, Blocks: []Block{b.out()}})
}

// pages are the pages that every counted pool has: so many blocks can be published.
func (v *View) pages() events.PoolPages {
	// New refuses a view of no pools, so there is a first one.
	least := v.sizes[0]
	for _, s := range v.sizes[1:] {
		least.Primary, least.Secondary = min(least.Primary, s.Primary), min(least.Secondary, s.Secondary)
	}
	return least
}
