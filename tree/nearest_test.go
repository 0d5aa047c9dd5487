package tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Hundreds of siblings, whole and in part, that come, go, lose pages and are
// claimed: the best of them is the one that a search of all finds.
func TestNearestAmongMany(t *testing.T) {
	const tpb = 5
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		o := oracle{tpb: tpb, pools: []PoolShape{{}, {Window: 4}}}
		f := newFixture(Config{TokensPerBlock: tpb, Pools: o.pools})
		draw := func(n int) (tokens []messages.Token, full []atom) {
			for range n {
				tok := messages.Token(r.IntN(4))
				tokens, full = append(tokens, tok), append(full, atom{token: tok})
			}
			return tokens, full
		}
		for range 1500 {
			switch r.IntN(3) {
			case 0:
				tokens, full := draw(1 + r.IntN(tpb))
				s := protocol.StoreItem{Tokens: tokens, To: len(tokens), Tables: f.table(tokens)}
				o.store(&s, full, 0)
				f.apply = protocol.Apply{Stores: []protocol.StoreItem{s}}
				f.Apply(&f.apply)
			default:
				if len(o.blocks) == 0 {
					continue
				}
				b := o.blocks[r.IntN(len(o.blocks))]
				p := r.IntN(2)
				if b.places[p] == protocol.Nowhere || r.IntN(3) > 0 {
					continue
				}
				id := f.arena.child(spot{f.arena.rootOf(b.ns.Namespace, b.ns.cross), protocol.NoBlock},
					hosted(b.full))
				f.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Pool: messages.PoolID(p), Block: id,
					To: protocol.Nowhere}}})
				b.places[p] = protocol.Nowhere
				o.sweep()
			}
			tokens, full := draw(1 + r.IntN(tpb+1))
			want := o.match(space{}, full[:len(full)-1], true)
			it := f.match(tokens)
			require.Equal(t, want.length, it.Matched)
			require.Equal(t, want.reach, it.Reach)
			require.Equal(t, want.lacking, it.Lacking)
			if want.source != nil {
				_, got := fullOf(f.Tree, it.Source.Block)
				require.Equal(t, want.source.full, got)
				f.Apply(&protocol.Apply{Claims: []protocol.ClaimItem{{Source: it.Source.Block}}})
				o.claim(space{}, nil, 0, want.source, &protocol.ClaimItem{}, 0)
			}
		}
		require.NoError(t, f.Check())
		require.Greater(t, f.Blocks(), 100)
	}
}

// hosted are the tokens of atoms that nothing covers.
func hosted(full []atom) []messages.Token {
	tokens := make([]messages.Token, len(full))
	for i, a := range full {
		tokens[i] = a.token
	}
	return tokens
}
