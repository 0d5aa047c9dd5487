package publish

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// holding is what a pool has of a block.
// The zero value is that of a pool which does not hold the block; tier and priority have
// no meaning then.
type holding struct {
	held     bool
	tier     messages.Tier
	priority messages.Priority
}

// block is a block that a pool of the view holds, or that such blocks follow.
//
// A block whose parent is unknown hangs below a block that is not known: the engine
// has told its hash and nothing else.
type block struct {
	// hash is the block's name in the engine's events and its key in View.blocks. It
	// never changes.
	hash kvevents.Hash
	// known is whether a stored event has told the block's tokens and parent.
	known bool
	// parent is nil while the block is not known; the root's is nil always. Children
	// are in no order. Invariant: parent.children[index] is the block.
	parent   *block
	children []*block
	index    int
	// tokens and covers are those of the stored event that made the block known. Their
	// arrays belong to the view from then on, and changes refer to them.
	tokens []messages.Token
	covers []messages.Cover
	// namespace is told for a child of the root, and that of the parent for other blocks
	// that are published; nil is the zero Namespace.
	namespace *messages.Namespace
	held      []holding // by index in View.pools

	// ok: the block and all before it may be published if there is a use for them. depth is
	// its index in its prefix then. end: a prompt that goes on behind the block reuses all up
	// to here. uses counts end, and the children that have uses.
	ok   bool
	end  bool
	uses int

	depth int

	// dirty keeps a block from being in the list twice: a batch may name it once for each
	// pool.
	dirty bool // in View.dirty

	// What readers were told. The fields below mean nothing unless published is set.
	published bool
	name      uint64
	tier      messages.Tier
	priority  messages.Priority
	digest    digest // what names of children are made from; only some namers use it
}

// block returns the block of a hash, and adds one that is not known.
func (v *View) block(h kvevents.Hash) *block {
	// The map has a block that was only named as a parent, too: what hangs below it must
	// find it when it is stored.
	b := v.blocks[h]
	if b == nil {
		b = &block{hash: h, held: make([]holding, len(v.pools))}
		v.blocks[h] = b
	}
	return b
}

// touch notes that what pools hold of a block has changed.
func (v *View) touch(b *block) {
	if !b.dirty {
		b.dirty = true
		v.dirty = append(v.dirty, b)
	}
}

// attach makes b a child of parent, which may be a block that is not known.
// b has no parent before. The cost does not depend on the number of children.
func (b *block) attach(parent *block) {
	b.parent, b.index = parent, len(parent.children)
	parent.children = append(parent.children, b)
}

// detach removes b from its parent. The last child takes its place: the root has as
// many as there are prompts that begin differently, too many to move all of them.
func (b *block) detach() {
	p := b.parent
	last := p.children[len(p.children)-1]
	p.children[b.index], last.index = last, b.index
	// The array would keep the block alive behind its end.
	p.children[len(p.children)-1] = nil
	p.children = p.children[:len(p.children)-1]
	b.parent = nil
}

// appendChildren puts the children on a stack, the first one on top.
// The order of children depends on the events alone, so equal events give equal bytes.
func (b *block) appendChildren(stack []*block) []*block {
	for i := len(b.children) - 1; i >= 0; i-- {
		stack = append(stack, b.children[i])
	}
	return stack
}

// total is what the counted pools have together of a block: it is held if all hold it,
// it is as far as the farthest copy, and it goes as soon as the first pool evicts it.
func (v *View) total(b *block) holding {
	// The neutral values of the three rules. At least one pool counts, see New.
	all := holding{held: true, tier: messages.Primary, priority: messages.MaxPriority}
	for _, h := range b.held[:v.counted] {
		all.held = all.held && h.held
		// Primary is less than Secondary.
		all.tier = max(all.tier, h.tier)
		all.priority = min(all.priority, h.priority)
	}
	return all
}

// unheld tells whether no pool holds the block.
// It is not the opposite of total().held: a block that some of the counted pools hold is
// neither publishable nor to be dropped.
func (b *block) unheld() bool {
	return !slices.ContainsFunc(b.held, func(h holding) bool { return h.held })
}

// salted tells whether a published block has a salt.
func (b *block) salted() bool { return b.namespace != nil && b.namespace.Salt != "" }
