package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A queue that is never empty stays as long as it has to be.
func TestAQueueThatIsNeverEmpty(t *testing.T) {
	for _, waiting := range []int{1, 7, 100} {
		var l queue
		next, first := 0, 0
		push := func() {
			l.push(queued{request: next})
			next++
		}
		for range waiting {
			push()
		}
		for i := range 10_000 {
			push()
			q, ok := l.pop()
			require.True(t, ok)
			require.Equal(t, first, q.request)
			if i%3 == 0 {
				l.pushFirst(q)
				q, _ = l.pop()
				require.Equal(t, first, q.request)
			}
			first++
			require.Equal(t, waiting, l.len())
		}
		assert.LessOrEqual(t, cap(l.items), 8*(waiting+1))
	}
}
