package largepages

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWithin(t *testing.T) {
	for name, c := range map[string]struct{ first, bytes, from, to uintptr }{
		"one whole page":              {pageBytes, pageBytes, pageBytes, 2 * pageBytes},
		"a page less one byte":        {pageBytes, pageBytes - 1, pageBytes, pageBytes},
		"a page's bytes over a bound": {pageBytes + 1, pageBytes, 2 * pageBytes, 2 * pageBytes},
		"two pages over a bound":      {pageBytes + 1, 2 * pageBytes, 2 * pageBytes, 3 * pageBytes},
		"within a page":               {pageBytes + 5, 10, 2 * pageBytes, pageBytes},
		"nothing":                     {pageBytes + 5, 0, 2 * pageBytes, pageBytes},
	} {
		from, to := within(c.first, c.bytes)
		assert.Equal(t, c.from, from, name)
		assert.Equal(t, c.to, to, name)
	}
}

// TestMake: whatever the system does about the request, the slice is one of zero elements
// that can be written from end to end.
func TestMake(t *testing.T) {
	for _, capacity := range []int{0, 1, 1000, pageBytes, pageBytes + 1, 5*pageBytes/8 + 3} {
		list := Make[uint64](capacity/2, capacity)
		require.Len(t, list, capacity/2)
		require.Equal(t, capacity, cap(list))
		list = list[:capacity]
		sum := uint64(0)
		for i := range list {
			sum += list[i]
			list[i] = uint64(i)
		}
		assert.Zero(t, sum)
		for i := range list {
			sum += list[i] - uint64(i)
		}
		assert.Zero(t, sum)
	}
	assert.Panics(t, func() { Make[byte](2, 1) })
}
