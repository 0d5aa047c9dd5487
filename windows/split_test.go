package windows

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// naiveFill is the rule as the text states it: floors by big rationals, then
// one page at a time.
func naiveFill(shares []share, bytes uint64) []uint64 {
	total, left := new(big.Rat), new(big.Rat).SetUint64(bytes)
	for _, sh := range shares {
		total.Add(total, new(big.Rat).SetUint64(sh.weight))
	}
	pages := make([]uint64, len(shares))
	for i, sh := range shares {
		part := new(big.Rat).SetUint64(bytes)
		part.Mul(part, new(big.Rat).SetUint64(sh.weight)).Quo(part, total)
		part.Quo(part, new(big.Rat).SetUint64(sh.pageBytes))
		pages[i] = min(sh.cap, new(big.Int).Quo(part.Num(), part.Denom()).Uint64())
		left.Sub(left, new(big.Rat).SetUint64(pages[i]*sh.pageBytes))
	}
	for {
		best := -1
		for i, sh := range shares {
			if pages[i] >= sh.cap || left.Cmp(new(big.Rat).SetUint64(sh.pageBytes)) < 0 {
				continue
			}
			if best < 0 || sequences(pages[i], sh).Cmp(sequences(pages[best], shares[best])) < 0 {
				best = i
			}
		}
		if best < 0 {
			return pages
		}
		pages[best]++
		left.Sub(left, new(big.Rat).SetUint64(shares[best].pageBytes))
	}
}

func sequences(pages uint64, sh share) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(pages), new(big.Int).SetUint64(sh.need))
}

func checkFill(t *rapid.T) {
	shares := make([]share, rapid.IntRange(1, 5).Draw(t, "pools"))
	var pageSum uint64
	for i := range shares {
		sh := share{
			name:      fmt.Sprint(i),
			pageBytes: rapid.Uint64Range(1, 60).Draw(t, "page bytes"),
			need:      rapid.Uint64Range(1, 40).Draw(t, "need"),
			cap:       rapid.OneOf(rapid.Just(uint64(MaxPages+1)), rapid.Uint64Range(1, 30)).Draw(t, "cap"),
		}
		sh.weight = sh.need * sh.pageBytes
		shares[i] = sh
		pageSum += sh.pageBytes
	}
	if rapid.Bool().Draw(t, "by fractions") {
		for i := range shares {
			shares[i].weight = rapid.Uint64Range(1, 10).Draw(t, "weight")
		}
	}
	bytes := rapid.Uint64Range(0, 4000).Draw(t, "bytes")
	want := naiveFill(shares, bytes)
	s := splitting{shares: append([]share(nil), shares...)}
	s.fill(bytes)
	var used uint64
	for i, sh := range s.shares {
		assert.Equal(t, want[i], sh.pages, "pool %d", i)
		used += sh.pages * sh.pageBytes
	}
	assert.LessOrEqual(t, used, bytes)
	for _, sh := range s.shares {
		assert.LessOrEqual(t, sh.pages, sh.cap)
		assert.True(t, sh.pages == sh.cap || sh.pageBytes > bytes-used, "a page could still be given")
	}
}

func TestFillAgainstNaive(t *testing.T) { rapid.Check(t, checkFill) }

func FuzzFill(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkFill)) }

// TestSplitOfModels: the promises that hold for whole models and any budget.
func TestSplitOfModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Layers: rapid.IntRange(1, 6).Draw(t, "layers"), HeadDim: 4, DType: Int8,
			MaxSeqLen: 512}
		for range m.Layers {
			m.KVHeads = append(m.KVHeads, rapid.SampledFrom([]int{1, 2, 7}).Draw(t, "heads"))
		}
		c := DefaultConfig()
		c.TokensPerBlock = 8
		c.MaxAttentionWindow = rapid.SliceOfN(rapid.SampledFrom([]int{2, 30, 100, 512}), 1, 3).Draw(t,
			"windows")
		pools, err := Pools(m, c)
		require.NoError(t, err)
		bytes := rapid.Int64Range(1<<16, 1<<22).Draw(t, "bytes")
		pages, err := Divide(pools, m, c, bytes)
		if err != nil {
			assert.ErrorIs(t, err, messages.ErrConfigInvalid)
			return
		}
		left, whole := bytes, int64(0)
		for i, p := range pools {
			left -= int64(pages[i]) * p.PageBytes()
			whole += int64(p.Need(512)) * p.PageBytes()
		}
		assert.GreaterOrEqual(t, left, int64(0))
		for i, p := range pools {
			assert.Less(t, left, p.PageBytes(), "no page could still be given")
			share := new(big.Rat).SetFrac64(bytes, whole)
			share.Mul(share, new(big.Rat).SetInt64(int64(p.Need(512))))
			exact, _ := share.Float64()
			assert.GreaterOrEqual(t, float64(pages[i]), math.Floor(exact)-1e-6, "never below its share")
		}
	})
}

func twoPools(t *testing.T) ([]Pool, Model, Config) {
	m := Model{Layers: 2, KVHeads: []int{1, 3}, HeadDim: 8, DType: Int8, MaxSeqLen: 160}
	c := DefaultConfig()
	c.TokensPerBlock, c.MaxAttentionWindow = 4, []int{8, 160}
	pools, err := Pools(m, c)
	require.NoError(t, err)
	require.EqualValues(t, 64, pools[0].PageBytes())
	require.EqualValues(t, 192, pools[1].PageBytes())
	return pools, m, c // needs: 3 and 40 pages, 192 + 7680 bytes
}

func TestDivideTable(t *testing.T) {
	cases := []struct {
		name  string
		bytes int64
		set   func(*Config)
		want  []int
	}{
		{"ten sequences exactly", 78720, nil, []int{30, 400}},
		// A page too few for ten sequences: 29.97 and 399.67, floors 29 and 399,
		// 192 bytes left. 29/3 < 399/40, so the small pool gets its page, then
		// nothing larger fits but its own once more, and again.
		{"left-overs", 78720 - 64, nil, []int{32, 399}},
		// 102.5 sequences of 3 pages in each pool; on the tie the first gets the rest.
		{"expected length", 78720, func(c *Config) { c.ExpectedSeqLen = 12 }, []int{309, 307}},
		{"a window longer than the expected length counts no more than full", 2560,
			func(c *Config) { c.ExpectedSeqLen = 4 }, []int{10, 10}},
		{"fractions", 64 * 1000,
			func(c *Config) { c.PoolFractions = map[string]float64{"w8h1": 0.1, "wfullh3": 0.9} },
			[]int{100, 300}},
		{"the cap", 1 << 30, func(c *Config) { c.MaxTokens = 9 }, []int{3, 3}},
		// The full pool is capped at 300 pages (57600 bytes); what that frees
		// goes to the other, up to its own cap.
		{"what a cap frees", 78720, func(c *Config) { c.MaxTokens = 1200 }, []int{300, 300}},
		{"what a cap frees, short of the other cap", 57600 + 64*200 + 63,
			func(c *Config) { c.MaxTokens = 1200 }, []int{200, 300}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			pools, m, c := twoPools(t)
			if tc.set != nil {
				tc.set(&c)
			}
			got, err := Divide(pools, m, c, tc.bytes)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestDivideRefuses(t *testing.T) {
	pools, m, c := twoPools(t)
	_, err := Divide(pools, m, c, 191)
	assert.EqualError(t, err, "pool wfullh3 gets no page: one takes 192 bytes, all pools share 191")
	_, err = Divide(pools, m, c, 0)
	assert.EqualError(t, err, "pool w8h1 gets no page: one takes 64 bytes, all pools share 0; "+
		"pool wfullh3 gets no page: one takes 192 bytes, all pools share 0")
	long := m
	long.MaxSeqLen = 1 << 20
	_, err = Divide(pools, long, c, 64*192+63)
	assert.ErrorContains(t, err,
		"pool w8h1 gets no page: one takes 64 bytes, all pools share 12351, divided for sequences of "+
			"1048576 tokens (expected_seq_len)")
	_, err = Divide(pools, m, c, -1)
	assert.EqualError(t, err, "device memory of -1 bytes is negative")
	_, err = Divide(pools, m, c, math.MaxInt64)
	assert.ErrorContains(t, err,
		"pool wfullh3 would have more than 268435456 primary pages of 192 bytes")
	c.MaxTokens = math.MaxInt
	_, err = Divide(pools, m, c, math.MaxInt64)
	assert.ErrorContains(t, err, "primary pages")
}

func TestSplit(t *testing.T) {
	pools, m, c := twoPools(t)
	c.FreeGPUMemoryFraction = 0.5
	c.HostCacheSize = 2 * 7872
	got, err := Split(pools, m, c, Budget{DeviceBytes: 2*78720 + 1, HostBytes: 1 << 20})
	require.NoError(t, err)
	assert.Equal(t, []PageCounts{{30, 6}, {400, 80}}, got)

	c.MaxTokens = 4
	got, err = Split(pools, m, c, Budget{DeviceBytes: 2 * 78720})
	require.NoError(t, err)
	assert.Equal(t, []PageCounts{{1, 6}, {1, 80}}, got, "max_tokens caps device pages only")

	c.HostCacheSize = 70
	got, err = Split(pools, m, c, Budget{DeviceBytes: 2 * 78720})
	require.NoError(t, err)
	assert.Equal(t, []PageCounts{{1, 1}, {1, 0}}, got, "no host page is no error")

	_, err = Split(pools, m, c, Budget{DeviceBytes: 1 << 20, HostBytes: 69})
	assert.EqualError(t, err, "host_cache_size 70 is more than the 69 bytes of free host memory")
	_, err = Split(pools, m, c, Budget{DeviceBytes: -2, HostBytes: -1})
	assert.EqualError(t, err,
		"free device memory of -2 bytes is negative; free host memory of -1 bytes is negative")
	_, err = Split(pools, m, c, Budget{DeviceBytes: 100})
	assert.ErrorContains(t, err, "pool wfullh3 gets no page")
	c.HostCacheSize = math.MaxInt64
	_, err = Split(pools, m, c, Budget{DeviceBytes: 1 << 20})
	assert.ErrorContains(t, err, "secondary pages")
}

// TestDecimalFractions: fractions mean what their decimal digits say.
func TestDecimalFractions(t *testing.T) {
	for _, tenths := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9} {
		assert.Equal(t, tenths, mulDiv(10, units(float64(tenths)/10), decimalUnit))
		assert.Equal(t, tenths*1e17, mulDiv(1e18, units(float64(tenths)/10), decimalUnit))
	}
}

// TestFillUpToCaps: caps end what pools get of the most memory that there can be.
func TestFillUpToCaps(t *testing.T) {
	const most = 1 << 20
	s := splitting{shares: []share{
		{pageBytes: 1, need: 1, weight: 1, cap: most + 1},
		{pageBytes: 1 << 40, need: 1 << 20, weight: 1 << 60, cap: 1},
		{pageBytes: 3, need: 7, weight: 21, cap: most},
	}}
	s.fill(math.MaxInt64)
	assert.EqualValues(t, most+1, s.shares[0].pages)
	assert.EqualValues(t, 1, s.shares[1].pages)
	assert.EqualValues(t, most, s.shares[2].pages)
}
