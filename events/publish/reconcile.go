package publish

import (
	"slices"
)

// reconcile publishes what has changed since the last call. Withdrawing comes first:
// it frees names, and what is stored then finds its readers without anything that
// contradicts it.
func (v *View) reconcile() []Change {
	var out []Change
	// Sizes come first: a reader that polls wants them before any block.
	if v.resized {
		v.resized = false
		out = append(out, Change{Kind: Created, Pages: v.pages()})
	}
	v.findEnds()
	for _, b := range v.dirty {
		if b.published && !b.reusable() {
			out = v.withdraw(out, b)
		}
	}
	// With blocks left the event would be wrong: they were stored again since.
	if v.cleared && len(v.names) == 0 {
		out = append(out, Change{Kind: Cleared})
	}
	v.cleared = false
	// What is published here has been so since before the batch, as publishing comes last:
	// its reader knows the old tier and priority.
	for _, b := range v.dirty {
		if b.published {
			out = v.update(out, b)
		}
	}
	for _, b := range v.dirty {
		out = v.publish(out, b)
	}
	v.forget()
	return out
}

// withdraw withdraws a block and all that is published behind it, children before
// their parents. Blocks behind it may still be held, and wait for it to come back.
// The cost is that of the published part of the subtree.
func (v *View) withdraw(out []Change, b *block) []Change {
	// A block that is not published has nothing published behind it, so the search
	// need not go on there.
	order := []*block{b}
	for i := 0; i < len(order); i++ {
		for _, c := range order[i].children {
			if c.published {
				order = append(order, c)
			}
		}
	}
	// A child stands behind its parent in the order of the search, so before it in
	// the reverse.
	for _, x := range slices.Backward(order) {
		out = appendRemoved(out, x)
		x.published = false
		delete(v.names, x.name)
	}
	return out
}

// update tells of a new tier or priority of a published block.
func (v *View) update(out []Change, b *block) []Change {
	// Both changes of one block are two, since TensorRT-LLM tells them apart, and vLLM
	// knows no priorities.
	now := v.total(b)
	if now.tier != b.tier {
		c := v.changeOf(TierChanged, b)
		c.OldTier, c.Tier = b.tier, now.tier
		b.tier = now.tier
		out = append(out, c)
	}
	if now.priority != b.priority {
		c := v.changeOf(PriorityChanged, b)
		c.OldPriority, c.Blocks[0].Priority = b.priority, now.priority
		b.priority = now.priority
		out = append(out, c)
	}
	return out
}

// publish publishes a block, if it may be, and then all behind it that may be.
// The search is depth first, so that consecutive blocks make one change.
func (v *View) publish(out []Change, b *block) []Change {
	// Children that may not be published end the search: nothing behind them may be.
	stack := []*block{b}
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if b.published || !v.publishable(b) || !v.claim(b) {
			continue
		}
		now := v.total(b)
		b.published, b.tier, b.priority = true, now.tier, now.priority
		out = appendStored(out, v.root, b)
		stack = b.appendChildren(stack)
	}
	return out
}

// publishable tells whether a block may be published under any name.
func (v *View) publishable(b *block) bool {
	return b.reusable() && b.parent != nil && b.parent.published
}

// claim gives a block its name; false if another one has it. The block is then published when it
// next changes and the name is free.
func (v *View) claim(b *block) bool {
	if b.parent != v.root {
		b.namespace = b.parent.namespace
	}
	b.name, b.digest = v.namer.name(v.root, b)
	if v.names[b.name] != nil {
		// Merging the two would tell readers of a prefix that is not there. Not
		// publishing the second costs a hit.
		v.collisions++
		return false
	}
	v.names[b.name] = b
	return true
}

// forget ends a batch: nothing is dirty any more, and blocks that no pool holds and
// nothing follows are dropped, with those before them for which the same holds now.
func (v *View) forget() {
	for _, b := range v.dirty {
		b.dirty = false
		// A block can be dirty and already dropped, as the parent of an earlier one;
		// its hash may belong to nothing then.
		for b != nil && b != v.root && b.unheld() && len(b.children) == 0 && v.blocks[b.hash] == b {
			delete(v.blocks, b.hash)
			parent := b.parent
			if parent != nil {
				b.detach()
			}
			b = parent
		}
	}
	clear(v.dirty)
	v.dirty = v.dirty[:0]
}
