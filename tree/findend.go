package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// findEnd answers which block has exactly the tokens of an offer, and gives it the
// pages that the offer hands over. It comes after the store, so it finds what this
// offer has stored and what another sequence had stored before: two sequences with
// equal tokens share one checkpoint.
func (t *storer) findEnd(s *protocol.StoreItem) {
	s.End.Block, s.End.Priority, s.End.Lacks = protocol.NoBlock, 0, s.End.Lacks[:0]
	x, i := t.blockOf(s)
	// A ghost gets no checkpoint: no attention pool has the block that the state
	// belongs to.
	if x == none || !t.base.arena.held(x, i) {
		return
	}
	b := t.base.arena.ids(x)[i]
	// The caller gives the priority to the page that it copies for the block.
	t.base.expireNow(b)
	s.End.Block, s.End.Priority = b, t.base.blocks.priority[b]
	for p := t.base.arena.tokenPools; p < t.base.arena.selfPools; p++ {
		if t.base.arena.locations(x, p)[i] != protocol.Nowhere {
			continue
		}
		// Lacks is from before HandOver, so the caller sees in which pools its page
		// was used.
		s.End.Lacks = append(s.End.Lacks, messages.PoolID(p))
		if p < len(s.HandOver) && s.HandOver[p] != messages.NoPage {
			t.attachCheckpoint(b, p, s.HandOver[p])
		}
	}
}

// blockOf finds the block of exactly the tokens [0, To) of an offer, perhaps a ghost;
// none if there is none.
func (t *storer) blockOf(s *protocol.StoreItem) (x, i int32) {
	whole := s.To / t.base.arena.tpb * t.base.arena.tpb
	x, i = t.base.rootOf(s.Namespace, s.Cross), 0
	if x == none || s.To == 0 {
		return none, 0
	}
	// As in start, a cursor saves the comparison of the whole prompt. One behind the
	// end of the offer is of no use here, since the search goes only downwards.
	if t.base.arena.follows(s.Cursor) && int(t.base.arena.depth(s.Cursor.Block)+1)*t.base.arena.tpb <= whole {
		x, i = t.base.arena.at(s.Cursor.Block)
		i++
	}
	for at := int(t.base.arena.nodes[x].depth+i) * t.base.arena.tpb; at < whole; at = int(t.base.arena.nodes[x].depth+i) * t.base.arena.tpb {
		if i == t.base.arena.nodes[x].n {
			if x, i = t.base.child(x, s.Tokens[at:at+t.base.arena.tpb]), 0; x == none {
				return none, 0
			}
		}
		// An offer that was trimmed at its end may lead to no block; the tree is not
		// changed to make one.
		n := firstDifference(t.base.arena.tokensFrom(x, i), s.Tokens[int(t.base.arena.nodes[x].depth+i)*t.base.arena.tpb:whole]) / t.base.arena.tpb
		if n == 0 {
			return none, 0
		}
		i += int32(n)
	}
	if whole == s.To {
		return x, i - 1
	}
	// Nothing stored in part can follow inside a run.
	if i < t.base.arena.nodes[x].n {
		return none, 0
	}
	return t.base.child(x, s.Tokens[whole:s.To]), 0
}
