package hazards

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A page caches at most one block, also when forks hold it with other lengths:
// a fork that was rewound offers the first three tokens of a page, and then its
// sibling, whose own block has been evicted meanwhile, offers all four.
func TestAPageOfForksCachesOneBlock(t *testing.T) {
	for name, together := range map[string]bool{"one after the other": false, "in one request": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{pages: windows.PageCounts{Primary: 8}})
			tokens := text(1, 8)
			requests := []messages.AdmitRequest{{Tokens: tokens[:5]}, {Tokens: tokens[:5]}}
			results, err := w.AdmitBatch(context.Background(), requests)
			require.NoError(t, err)
			a, b := admitted(requests[0], &results[0]), admitted(requests[1], &results[1])
			for _, q := range []*sequence{a, b} {
				require.NoError(t, w.compute(q, 5))
				require.NoError(t, w.append(q, tokens[5:]...))
				require.NoError(t, w.compute(q, 8))
			}
			c, err := w.fork(b)
			require.NoError(t, err)
			require.NoError(t, w.RewindOne(context.Background(), c.id, 1))
			if !together {
				require.NoError(t, w.release(c))
			}
			require.NoError(t, w.release(a))
			d, _, err := w.start(text(2, 24)) // evicts what a has stored
			require.NoError(t, err)
			if together {
				steps := []messages.ReleaseStep{{Sequence: c.id}, {Sequence: b.id, After: b.last}}
				_, err := w.Release(context.Background(), steps)
				require.NoError(t, err)
			} else {
				require.NoError(t, w.release(b))
			}
			w.right(d)
			require.NoError(t, w.release(d))
			w.right()
			w.close()
		})
	}
}
