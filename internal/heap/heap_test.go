package heap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// jobs is a heap of numbers, ordered by their keys and, if those are equal, by
// the numbers.
type jobs struct {
	heap  []int32
	keys  []int
	index []int // by number; Removed: not in the heap
}

// byKey is the order of jobs.
type byKey struct{ *jobs }

func (o byKey) Before(a, b int32) bool {
	return o.keys[a] < o.keys[b] || o.keys[a] == o.keys[b] && a < b
}

func (o byKey) Moved(x int32, i int) { o.index[x] = i }

func newJobs(n int) *jobs {
	j := &jobs{keys: make([]int, n), index: make([]int, n)}
	for i := range j.index {
		j.index[i] = Removed
	}
	return j
}

// check holds the heap and the noted indices against each other.
func (j *jobs) check(t require.TestingT) {
	require.Equal(t, -1, Misplaced(j.heap, byKey{j}), "%v of %v", j.heap, j.keys)
	listed := 0
	for x, i := range j.index {
		if i == Removed {
			continue
		}
		listed++
		require.Less(t, i, len(j.heap), "number %d", x)
		require.Equal(t, int32(x), j.heap[i], "number %d", x)
	}
	require.Len(t, j.heap, listed)
}

// first returns the number that a search through all of them finds.
func (j *jobs) first() (first int32, ok bool) {
	for x, i := range j.index {
		if i != Removed && (!ok || byKey{j}.Before(int32(x), first)) {
			first, ok = int32(x), true
		}
	}
	return first, ok
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const numbers = 40
		j := newJobs(numbers)
		number := rapid.Int32Range(0, numbers-1)
		key := rapid.IntRange(0, 9)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				j.check(t)
				if first, ok := j.first(); ok {
					require.Equal(t, first, j.heap[0])
				}
			},
			"push": func(t *rapid.T) {
				x := number.Draw(t, "number")
				if j.index[x] != Removed {
					t.Skip("in the heap")
				}
				j.keys[x] = key.Draw(t, "key")
				Push(&j.heap, byKey{j}, x)
			},
			"pop": func(t *rapid.T) {
				first, ok := j.first()
				if !ok {
					t.Skip("empty")
				}
				require.Equal(t, first, Pop(&j.heap, byKey{j}))
			},
			"remove": func(t *rapid.T) {
				x := number.Draw(t, "number")
				if j.index[x] == Removed {
					t.Skip("not in the heap")
				}
				require.Equal(t, x, Remove(&j.heap, byKey{j}, j.index[x]))
			},
			"fix": func(t *rapid.T) {
				x := number.Draw(t, "number")
				if j.index[x] == Removed {
					t.Skip("not in the heap")
				}
				j.keys[x] = key.Draw(t, "key")
				Fix(j.heap, byKey{j}, j.index[x])
			},
		})
	})
}

func TestPopSorts(t *testing.T) {
	const n = 1000
	j := newJobs(n)
	for x := range j.keys {
		j.keys[x] = rand.IntN(n)
		Push(&j.heap, byKey{j}, int32(x))
	}
	var keys []int
	for len(j.heap) > 0 {
		keys = append(keys, j.keys[Pop(&j.heap, byKey{j})])
	}
	assert.Len(t, keys, n)
	assert.True(t, slices.IsSorted(keys))
}

func TestMisplacedFindsWhatIsOutOfOrder(t *testing.T) {
	j := newJobs(5)
	for x := range j.keys {
		j.keys[x] = x
		Push(&j.heap, byKey{j}, int32(x))
	}
	require.Equal(t, -1, Misplaced(j.heap, byKey{j}))
	j.keys[4] = -1
	assert.Equal(t, 4, Misplaced(j.heap, byKey{j}))
}

// pointers is an order of elements that do not need their indices.
type pointers struct{}

func (pointers) Before(a, b *int) bool { return *a < *b }
func (pointers) Moved(*int, int)       {}

func TestRemovedElementsCanBeCollected(t *testing.T) {
	var h []*int
	for i := range 3 {
		Push(&h, pointers{}, &i)
	}
	Pop(&h, pointers{})
	assert.Nil(t, h[:3][2], "the array points to no element that has left")
}

func TestNothingIsAllocated(t *testing.T) {
	j := newJobs(100)
	for x := range j.keys {
		j.keys[x] = x * 7 % 100
		Push(&j.heap, byKey{j}, int32(x))
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		x := Pop(&j.heap, byKey{j})
		Push(&j.heap, byKey{j}, x)
		Fix(j.heap, byKey{j}, len(j.heap)/2)
	}))
}

func BenchmarkPopPush(b *testing.B) {
	for _, n := range []int{16, 1024, 65536} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			j := newJobs(n)
			for x := range j.keys {
				j.keys[x] = rand.Int()
				Push(&j.heap, byKey{j}, int32(x))
			}
			b.ReportAllocs()
			for b.Loop() {
				x := Pop(&j.heap, byKey{j})
				j.keys[x] = rand.Int()
				Push(&j.heap, byKey{j}, x)
			}
		})
	}
}
