package oracle

import "slices"

// worth finds the useless pages, those that no match can use for want of what other pools
// hold. It looks before each part of a request that takes pages: when the request begins, and
// in a commit when its blocks are stored and behind each checkpoint.
type worth struct {
	*layout
	tree *tree
}

// appraise marks the useless pages. With one pool there are none.
func (w *worth) appraise() {
	if len(w.pools) == 1 {
		return
	}
	var ends []*block
	for _, b := range w.tree.blocks {
		if w.end(b) {
			ends = append(ends, b)
		}
	}
	for _, b := range w.tree.blocks {
		needed := slices.ContainsFunc(ends, func(e *block) bool {
			return e == b || w.whole(b) && leads(b, e)
		})
		for _, p := range w.pools {
			if s := b.at[p.id]; s != nil {
				s.useless = !needed
				if p.State {
					s.useless = !slices.Contains(ends, b)
				}
			}
		}
	}
}

// end reports whether a match can end at a block, as far as this can be told from the block and
// the full-attention pools: each pool has the block, those all before it.
func (w *worth) end(b *block) bool {
	if !held(b, w.pools) {
		return false
	}
	full := slices.DeleteFunc(w.attentionPools(), (*pool).limited)
	for index := range b.index {
		if len(full) > 0 && !held(w.tree.find(b.namespace, b.key[:(index+1)*w.tpb]), full) {
			return false
		}
	}
	return true
}

// leads reports whether a whole block is on the path to e.
func leads(b, e *block) bool {
	return b.namespace == e.namespace && len(b.key) < len(e.key) &&
		slices.Equal(b.key, e.key[:len(b.key)])
}
