package publish

import (
	"errors"
	"fmt"
)

// Check walks the whole view and joins everything that is wrong with it.
// It costs one sort of all blocks and their totals, so it is for tests: the model test
// calls it behind each batch.
func (v *View) Check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("publish: "+format, args...))
	}
	if len(v.dirty) > 0 {
		wrong("%d blocks are dirty between two batches", len(v.dirty))
	}
	published := 0
	for _, b := range v.sorted() {
		if v.blocks[b.hash] != b || b.dirty {
			wrong("block %x is dirty or under another's hash", b.hash[:4])
		}
		if b.unheld() && len(b.children) == 0 {
			// Otherwise forget would leak one block for each that the engine drops.
			wrong("block %x is kept, but no pool holds it and nothing follows it", b.hash[:4])
		}
		if b.parent != nil && (b.index >= len(b.parent.children) || b.parent.children[b.index] != b) {
			wrong("block %x is not child %d of its parent", b.hash[:4], b.index)
		}
		// The root is not in blocks, so the rule that known blocks have parents has no
		// exception here.
		if b.known != (b.parent != nil) {
			wrong("block %x: known %v, but a parent %v", b.hash[:4], b.known, b.parent != nil)
		}
		problems = append(problems, v.checkUses(b)...)
		if b.published {
			published++
			problems = append(problems, v.checkPublished(b)...)
		} else if v.publishable(b) && v.collisions == 0 {
			wrong("block %x is not published, but may be, and no other had its name", b.hash[:4])
		}
	}
	if published != len(v.names) {
		wrong("%d blocks are published under %d names", published, len(v.names))
	}
	return errors.Join(problems...)
}

// checkUses checks what is known of a block against what the pools hold.
func (v *View) checkUses(b *block) (problems []error) {
	uses := 0
	if b.end {
		uses++
	}
	for _, c := range b.children {
		if c.reusable() {
			uses++
		}
	}
	if b.ok != v.allowed(b) || b.end != (b.ok && v.ends(b)) || b.uses != uses {
		problems = append(problems,
			fmt.Errorf("publish: block %x: allowed %v, end %v, %d uses; it should be %v, %v, %d", b.hash[:4],
				b.ok, b.end, b.uses, v.allowed(b), v.allowed(b) && v.ends(b), uses))
	}
	return problems
}

// checkPublished checks a published block against what the pools hold.
// The comparison with the totals says that no change of a batch was missed: readers were
// told exactly what the pools hold.
func (v *View) checkPublished(b *block) (problems []error) {
	now := v.total(b)
	switch {
	case v.names[b.name] != b:
		problems = append(problems, fmt.Errorf("publish: name %d is not that of block %x", b.name,
			b.hash[:4]))
	case !v.publishable(b):
		problems = append(problems, fmt.Errorf("publish: block %x is published, but may not be",
			b.hash[:4]))
	case now.tier != b.tier || now.priority != b.priority:
		problems = append(problems, fmt.Errorf("publish: block %x was told %s %d, the pools say %s %d",
			b.hash[:4], b.tier, b.priority, now.tier, now.priority))
	}
	return problems
}
