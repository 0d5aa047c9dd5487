package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

func TestDirection(t *testing.T) {
	p, s := messages.Primary, messages.Secondary
	cases := []struct {
		from, to messages.Tier
		want     gpu.Direction
		ok       bool
	}{{p, s, gpu.Offload, true}, {s, p, gpu.Onboard, true}, {p, p, gpu.Local, true}, {s, s, 0, false}}
	for _, c := range cases {
		got, ok := gpu.Copy{Src: gpu.Slot{Tier: c.from}, Dst: gpu.Slot{Tier: c.to}}.Direction()
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.ok, ok)
	}
	for d := range gpu.Directions {
		back, err := gpu.ParseDirection(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, back)
	}
	_, err := gpu.ParseDirection("sideways")
	assert.ErrorContains(t, err, "sideways")
}

func TestFollows(t *testing.T) {
	size := gpu.PageSizes{Src: 100, Dst: 100}
	at := func(src, dst messages.PageID) gpu.Copy {
		return gpu.Copy{Src: gpu.Slot{Page: src}, Dst: gpu.Slot{Page: dst, Tier: messages.Secondary},
			Bytes: 100}
	}
	assert.True(t, at(4, 8).Follows(at(3, 7), size))
	assert.False(t, at(4, 9).Follows(at(3, 7), size), "the destinations do not adjoin")
	assert.False(t, at(3, 7).Follows(at(4, 8), size), "order matters")
	part := gpu.Copy{Src: gpu.Slot{Page: 3}, Dst: gpu.Slot{Page: 7, Tier: messages.Secondary},
		SrcOffset: 40, DstOffset: 40, Bytes: 60}
	head := part
	head.SrcOffset, head.DstOffset, head.Bytes = 0, 0, 40
	assert.True(t, part.Follows(head, size))
	assert.True(t, at(4, 8).Follows(part, size))
	other := at(4, 8)
	other.Src.Pool = 1
	assert.False(t, other.Follows(at(3, 7), size))
}

// Overlaps agrees with comparing all pairs.
func TestOverlaps(t *testing.T) {
	var o gpu.Overlaps
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Custom(func(t *rapid.T) gpu.Slot {
			return gpu.Slot{
				Pool: gpu.Pool(rapid.IntRange(0, 1).Draw(t, "pool")),
				Tier: messages.Tier(rapid.IntRange(0, 1).Draw(t, "tier")),
				Page: messages.PageID(rapid.IntRange(0, 3).Draw(t, "page")),
			}
		})
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) gpu.Copy {
			return gpu.Copy{
				Src: slot.Draw(t, "src"), Dst: slot.Draw(t, "dst"),
				SrcOffset: rapid.Int64Range(0, 9).Draw(t, "from"), DstOffset: rapid.Int64Range(0, 9).Draw(t,
					"to"),
				Bytes: rapid.Int64Range(1, 5).Draw(t, "bytes"),
			}
		}), 0, 5).Draw(t, "copies")
		err := o.Find(list)
		assert.Equal(t, anyOverlap(list), err != nil, "%v: %v", list, err)
	})
}

func anyOverlap(list []gpu.Copy) bool {
	meets := func(a, b gpu.Slot, i, j, n, m int64) bool { return a == b && i < j+m && j < i+n }
	for x, c := range list {
		for y, d := range list {
			if meets(c.Dst, d.Src, c.DstOffset, d.SrcOffset, c.Bytes, d.Bytes) ||
				x != y && meets(c.Dst, d.Dst, c.DstOffset, d.DstOffset, c.Bytes, d.Bytes) {
				return true
			}
		}
	}
	return false
}

func TestOverlapsStateTheFact(t *testing.T) {
	var o gpu.Overlaps
	s := gpu.Slot{Pool: 2, Page: 7}
	err := o.Find([]gpu.Copy{
		{Src: gpu.Slot{}, Dst: s, DstOffset: 0, Bytes: 10},
		{Src: s, Dst: gpu.Slot{Page: 1}, SrcOffset: 5, Bytes: 10},
	})
	assert.EqualError(t, err,
		"gpu: copies 0 and 1 of the batch overlap: pool 2 primary page 7 bytes [0, 10) as destination "+
			"and [5, 15) as source")
}

// opened is what the test's backend was asked for. It is registered once, however
// often the test runs.
var opened gpu.Spec

func init() {
	gpu.Register("test", func(s gpu.Spec) (gpu.Device, error) {
		opened = s
		return nil, gpu.ErrNoDriver
	})
}

func TestRegistry(t *testing.T) {
	_, err := gpu.Open("test", gpu.Spec{Ordinal: 3})
	assert.ErrorIs(t, err, gpu.ErrNoDriver)
	assert.Equal(t, 3, opened.Ordinal)
	_, err = gpu.Open("abacus", gpu.Spec{})
	assert.ErrorContains(t, err, `no backend "abacus" is linked into this program (there are: test)`)
	assert.Panics(t, func() { gpu.Register("test", nil) })
}

// A run is its pages.
func TestRuns(t *testing.T) {
	run := gpu.Copy{Src: gpu.Slot{Page: 3}, Dst: gpu.Slot{Page: 7, Tier: messages.Secondary},
		Bytes: 300, Pages: 3}
	assert.Equal(t, 3, run.Count())
	assert.Equal(t, "pages [3, 6) to pages [7, 10)", run.Where())
	var pages []gpu.Copy
	for c := range run.Each {
		pages = append(pages, c)
	}
	one := gpu.Copy{Src: gpu.Slot{Page: 3}, Dst: gpu.Slot{Page: 7, Tier: messages.Secondary},
		Bytes: 100}
	two, three := one, one
	two.Src.Page, two.Dst.Page, three.Src.Page, three.Dst.Page = 4, 8, 5, 9
	assert.Equal(t, []gpu.Copy{one, two, three}, pages)
	for c := range one.Each {
		assert.Equal(t, one, c)
	}
	assert.Equal(t, 1, one.Count())
	after := one
	after.Src.Page, after.Dst.Page = 6, 10
	assert.True(t, after.Follows(run, gpu.PageSizes{Src: 100, Dst: 100}))
	var o gpu.Overlaps
	assert.NoError(t, o.Find([]gpu.Copy{run, after}))
	three.Src.Page = 20
	assert.ErrorContains(t, o.Find([]gpu.Copy{run, after, three}),
		"copies 0 and 2 of the batch overlap: pool 0 secondary page 9")
}

func TestCopyError(t *testing.T) {
	err := &gpu.CopyError{Index: 3, Copy: gpu.Copy{Src: gpu.Slot{Page: 1}, Dst: gpu.Slot{Page: 2}},
		Err: gpu.ErrCopyFailed}
	assert.EqualError(t, err, "copy 3, page 1 to page 2: gpu: copy failed")
	assert.ErrorIs(t, err, gpu.ErrCopyFailed)
}

// BenchmarkOverlaps is of scattered whole pages; the time of a page is the same
// for lists of any length.
func BenchmarkOverlaps(b *testing.B) {
	for _, n := range []int{100, 1000, 4000, 16000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var o gpu.Overlaps
			list := make([]gpu.Copy, n)
			for i := range list {
				page := messages.PageID(i * 7919 % n)
				list[i] = gpu.Copy{Src: gpu.Slot{Page: page}, Dst: gpu.Slot{Tier: messages.Secondary,
					Page: messages.PageID(i)}, Bytes: 1 << 20}
			}
			for b.Loop() {
				if err := o.Find(list); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/page")
		})
	}
}
