package arraypool

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Classes are consecutive and rise with the room, four for each doubling.
func TestClasses(t *testing.T) {
	for room, want := range map[int]int{0: 0, 1: 1, 3: 3, 4: 4, 7: 7, 8: 8, 9: 8, 10: 9, 15: 11, 16: 12, 19: 12, 20: 13, 1 << 20: 76, 1 << 30: 116, math.MaxInt32: 119, 1 << 31: 120, 1<<32 - 1: classes - 1} {
		assert.Equal(t, want, classOf(room), "room %d", room)
	}
	for room := 1; room < 5000; room++ {
		step := classOf(room) - classOf(room-1)
		require.True(t, step == 0 || step == 1, "room %d", room)
	}
}

// A pool takes and drops values as a list does that is searched in full: what it gives was put
// and not given before, fits what was asked for, and the room that is left is within the limit.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var p Pool[int]
		limit := rapid.IntRange(0, 400).Draw(rt, "limit")
		rooms := map[int]int{} // of the values that may be in the pool
		next := 0
		taken := func(value int, ok bool, least, most int) {
			if !ok {
				return
			}
			room, known := rooms[value]
			require.True(rt, known, "value %d is given twice or was never put", value)
			require.GreaterOrEqual(rt, room, least)
			require.LessOrEqual(rt, room, most)
			delete(rooms, value)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				room := rapid.IntRange(0, 120).Draw(rt, "room")
				rooms[next] = room
				p.Put(next, room, limit)
				next++
			},
			"take": func(rt *rapid.T) {
				n := rapid.IntRange(0, 120).Draw(rt, "n")
				most := n + rapid.IntRange(0, 60).Draw(rt, "more")
				value, ok := p.Take(n, most)
				taken(value, ok, n, most)
			},
			"take longer": func(rt *rapid.T) {
				n := rapid.IntRange(0, 120).Draw(rt, "n")
				value, ok := p.TakeLonger(n)
				taken(value, ok, n, 4*n+longerClasses)
			},
			"": func(rt *rapid.T) {
				require.NoError(rt, p.Check())
				require.LessOrEqual(rt, p.Room(), limit)
				sum := 0
				for value, room := range p.All() {
					require.Equal(rt, rooms[value], room, "value %d", value)
					sum += room
				}
				require.Equal(rt, sum, p.Room())
			},
		})
	})
}

// What is put can be taken again, unless the pool is over its limit: then it drops values of
// the class with the most room.
func TestPutDropsTheLargestClass(t *testing.T) {
	var p Pool[string]
	p.Put("small", 10, 100)
	p.Put("first", 40, 100)
	p.Put("second", 40, 100)
	require.Equal(t, 90, p.Room())
	p.Put("other", 20, 100)
	require.Equal(t, 70, p.Room(), "one of 40 is gone")
	_, ok := p.Take(40, 40)
	require.True(t, ok)
	_, ok = p.Take(40, math.MaxInt)
	require.False(t, ok)
	value, ok := p.TakeLonger(16)
	require.True(t, ok)
	require.Equal(t, "other", value)
	_, ok = p.Take(8, 9)
	require.False(t, ok, "a value of 10 is longer than asked")
	value, ok = p.Take(8, 10)
	require.True(t, ok, "the next class")
	require.Equal(t, "small", value)
	require.Zero(t, p.Room())
}

// A value that is taken is reachable from the pool no more.
func TestTakenValuesAreCleared(t *testing.T) {
	var p Pool[*int]
	for range 3 {
		p.Put(new(int), 5, 100)
	}
	for range 3 {
		_, ok := p.Take(5, 5)
		require.True(t, ok)
	}
	for _, e := range p.stacks[classOf(5)][:3] {
		assert.Nil(t, e.value)
	}
}

// Check names what is wrong.
func TestCheck(t *testing.T) {
	var p Pool[int]
	p.Put(1, 10, 100)
	p.stacks[3] = append(p.stacks[3], entry[int]{2, 40})
	p.room = 11
	require.EqualError(t, p.Check(), "a value with room for 40 is in class 3\nclass 3 has 1 values, its bit is false\nclass 3 has room for 40, counted as 0\nthe pool has room for 50, counted as 11")
}
