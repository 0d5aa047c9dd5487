package forecast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
)

// await begins a wait for one piece.
func await(p *Policy, f Features) Features {
	p.BeginWait()
	return p.Await(f)
}

// TestAwaitedPiecesRankFirst, those that the model expects least included, also while plain LRU
// decides, for as many requests as a wait may last, also where the numbers of waits begin anew.
func TestAwaitedPiecesRankFirst(t *testing.T) {
	least := New(100, 1, 1).Supersede(with(Features{}, featureLast, 1), 0)
	for _, begun := range []int64{0, 1, awaitedOrder - 1, awaitedOrder, 5*awaitedOrder + 5} {
		p := New(100, 1, 1)
		p.waits.n = begun
		for range 2 * awaitedRequests {
			p.Begin(&Request{})
		}
		f := await(p, await(p, least))
		require.Equal(t, p.model.predict(&least), p.model.predict(&f))
		for waited := range 2 * awaitedRequests {
			for _, ruling := range []int64{0, 1} {
				p.guard.ruling = ruling
				if waited < awaitedRequests {
					require.Greater(t, p.Rank(f, 0, 0), p.Rank(Features{}, p.Now(), 0),
						"after %d waits and %d requests", begun, waited)
				} else {
					require.Equal(t, p.Rank(least, 0, 0), p.Rank(f, 0, 0), "after %d waits and %d requests", begun,
						waited)
				}
			}
			p.Begin(&Request{})
		}
	}
}

// TestLaterWaitsRankFirst, as far as they last. Pieces for
// which one request waits rank alike.
func TestLaterWaitsRankFirst(t *testing.T) {
	for _, begun := range []int64{0, 100, awaitedOrder + 7} {
		p := New(100, 1, 1)
		p.waits.n = begun
		for range 2 * awaitedRequests {
			p.Begin(&Request{})
		}
		var pieces []Features
		for range 200 {
			pieces = append(pieces, await(p, Features{}))
			require.Equal(t, p.Rank(pieces[0], 0, 0), p.Rank(p.Supersede(pieces[0], 0), 0, 0))
			for k := range pieces[1:] {
				require.Greater(t, p.Rank(pieces[k+1], 0, 0), p.Rank(pieces[k], 0, 0), "%d of %d after %d", k,
					len(pieces), begun)
			}
		}
	}
}

// TestStillAwaited: the request that was awaited ends the wait, another one does not.
func TestStillAwaited(t *testing.T) {
	p := New(100, 1, 1)
	request := func(arrived, released int) {
		p.Begin(&Request{RequestFacts: protocol.RequestFacts{Arrived: time.Duration(
			arrived) * time.Second}, Released: time.Duration(released) * time.Second})
	}
	for k := range 100 {
		request(k, k+1)
		next := p.Piece(Run{Uses: 2})
		waits := await(p, next)
		// Those that were running then do not end the wait, the one that was admitted after it does.
		for range 3 {
			request(k, k+1)
			require.Equal(t, waits, p.StillAwaited(next, waits), "request %d", k)
		}
		request(k+1, k+2)
		require.Equal(t, next, p.StillAwaited(next, waits))
		require.Equal(t, next, p.StillAwaited(next, next))
	}
}
