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
	if x == none || !t.held(x, i) {
		return
	}
	b := t.ids(x)[i]
	// The caller gives the priority to the page that it copies for the block.
	t.expireNow(b)
	s.End.Block, s.End.Priority = b, t.blocks.priority[b]
	for p := t.tokenPools; p < t.selfPools; p++ {
		if t.locations(x, p)[i] != protocol.Nowhere {
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
	whole := s.To / t.tpb * t.tpb
	x, i = t.rootOf(s.Namespace, s.Cross), 0
	if x == none || s.To == 0 {
		return none, 0
	}
	// As in start, a cursor saves the comparison of the whole prompt. One behind the
	// end of the offer is of no use here, since the search goes only downwards.
	if t.follows(s.Cursor) && int(t.depth(s.Cursor.Block)+1)*t.tpb <= whole {
		x, i = t.at(s.Cursor.Block)
		i++
	}
	for at := int(t.nodes[x].depth+i) * t.tpb; at < whole; at = int(t.nodes[x].depth+i) * t.tpb {
		if i == t.nodes[x].n {
			if x, i = t.child(x, s.Tokens[at:at+t.tpb]), 0; x == none {
				return none, 0
			}
		}
		// An offer that was trimmed at its end may lead to no block; the tree is not
		// changed to make one.
		n := firstDifference(t.tokensFrom(x, i), s.Tokens[int(t.nodes[x].depth+i)*t.tpb:whole]) / t.tpb
		if n == 0 {
			return none, 0
		}
		i += int32(n)
	}
	if whole == s.To {
		return x, i - 1
	}
	// Nothing stored in part can follow inside a run.
	if i < t.nodes[x].n {
		return none, 0
	}
	return t.child(x, s.Tokens[whole:s.To]), 0
}
