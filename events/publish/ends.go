package publish

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A reader takes all leading blocks of a prompt that it knows for reusable. So a block is
// published only if it lies in a prefix that can be reused, which ends at the block or behind it:
//
//	full      b0 ── b1 ── b2 ── b3     what a reuse that ends behind b3 needs
//	window                b2 ── b3
//	states                      b3
//
// A prefix ends at a block if the pools that count hold all of it, those with windows or chunks
// what the next token attends to, and state pools the checkpoint of the block.

// reusable tells whether the block lies in a prefix that can be reused.
func (b *block) reusable() bool { return b.ok && b.uses > 0 }

// findEnds finds again where prefixes end: at the dirty blocks, at those behind them whose
// windows reach them, and at those that a dirty block has cut off or joined. What has changed
// becomes dirty.
func (v *View) findEnds() {
	var affected []*block
	seen := map[*block]bool{}
	add := func(b *block) {
		if !seen[b] {
			seen[b], affected = true, append(affected, b)
		}
	}
	for _, b := range v.dirty {
		v.spread(b, add)
	}
	// A block may be allowed by what has changed before it, so parents come before children.
	for i := 0; i < len(affected); i++ {
		b := affected[i]
		if ok := v.allowed(b); ok != b.ok {
			b.ok = ok
			if ok {
				b.depth = b.parent.depth + 1
			}
			for _, c := range b.children {
				// Also one that was looked at already, before its parent.
				seen[c] = true
				affected = append(affected, c)
			}
		}
	}
	for _, b := range affected {
		if end := b.ok && v.ends(b); end != b.end {
			b.end = end
			v.count(b, end)
		}
	}
}

// spread visits a block and those behind it whose windows may reach it.
func (v *View) spread(b *block, visit func(*block)) {
	level := []*block{b}
	for range v.reach + 1 {
		var next []*block
		for _, x := range level {
			visit(x)
			next = append(next, x.children...)
		}
		if level = next; len(level) == 0 {
			return
		}
	}
}

// allowed tells whether a block may be published if there is a use for it: it is whole, readers
// can tell it from others, the pools that count hold it, and so may the block before it.
func (v *View) allowed(b *block) bool {
	if !b.known || b.parent == nil || !b.parent.ok || len(b.tokens) != v.size || !v.total(b).held {
		return false
	}
	// A reader that knows no items takes two images of one size for the same tokens.
	if v.only != nil && b.covers != nil {
		return false
	}
	for i, p := range v.partial {
		// The sinks never leave a window: a reuse of any length needs them.
		if b.parent.depth+1 < p.SinkBlocks() && !b.held[v.counted+i].held {
			return false
		}
	}
	// Children have the namespace of the first block.
	if b.parent != v.root {
		return true
	}
	var ns messages.Namespace
	if b.namespace != nil {
		ns = *b.namespace
	}
	// What a decoder computes depends on its encoder's input, which no reader can name.
	return ns.Encoder == "" && (v.only == nil || ns == *v.only)
}

// ends tells whether the partial pools hold what a reuse needs that ends behind an allowed block.
func (v *View) ends(b *block) bool {
	for i, p := range v.partial {
		first := b.depth
		if p.Kind == windows.KindAttention {
			first = p.FirstNeeded((b.depth + 1) * v.size)
		}
		for x := b; x != v.root && x.depth >= first; x = x.parent {
			if !x.held[v.counted+i].held {
				return false
			}
		}
	}
	return true
}

// count counts a use of a block more or less, and of those before it as far as that makes a
// difference.
func (v *View) count(b *block, more bool) {
	for ; b != nil; b = b.parent {
		if more {
			b.uses++
		} else {
			b.uses--
		}
		first := more && b.uses == 1
		last := !more && b.uses == 0
		if !first && !last || b == v.root {
			return
		}
		v.touch(b)
	}
}
