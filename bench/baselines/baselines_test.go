package baselines

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	radix "github.com/hashicorp/go-immutable-radix/v2"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	tokensPerBlock = 16
	residentBlocks = 1_000_000
	shortText      = 4096
	longText       = 102_400
)

// cache is what all baselines can do.
type cache interface {
	// match is the number of leading tokens whose blocks are stored.
	match(tokens []int32) int
	// store stores the blocks of a prompt that are not stored yet.
	store(tokens []int32)
}

var seed = maphash.MakeSeed()

// blockHash names a block by all tokens up to its end, given the name before.
func blockHash(before uint64, block []int32) uint64 {
	var key [8 + 4*tokensPerBlock]byte
	binary.LittleEndian.PutUint64(key[:], before)
	copy(key[8:], bytesOf(block))
	return maphash.Bytes(seed, key[:])
}

func bytesOf(tokens []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
}

// hashMap is a Go map; it evicts at random what is over its bound.
type hashMap struct {
	pages map[uint64]int32
	next  int32
}

func newHashMap() cache { return &hashMap{pages: make(map[uint64]int32, residentBlocks)} }

func (m *hashMap) match(tokens []int32) (n int) {
	name := uint64(0)
	for ; n+tokensPerBlock <= len(tokens); n += tokensPerBlock {
		name = blockHash(name, tokens[n:n+tokensPerBlock])
		if _, ok := m.pages[name]; !ok {
			break
		}
	}
	return n
}

func (m *hashMap) store(tokens []int32) {
	name := uint64(0)
	for n := 0; n+tokensPerBlock <= len(tokens); n += tokensPerBlock {
		name = blockHash(name, tokens[n:n+tokensPerBlock])
		if _, ok := m.pages[name]; ok {
			continue
		}
		if len(m.pages) >= residentBlocks {
			for victim := range m.pages {
				delete(m.pages, victim)
				break
			}
		}
		m.pages[name] = m.next
		m.next++
	}
}

// hashLRU is golang-lru.
type hashLRU struct {
	pages *lru.Cache[uint64, int32]
	next  int32
}

func newHashLRU() cache {
	pages, err := lru.New[uint64, int32](residentBlocks)
	if err != nil {
		panic(err)
	}
	return &hashLRU{pages: pages}
}

func (m *hashLRU) match(tokens []int32) (n int) {
	name := uint64(0)
	for ; n+tokensPerBlock <= len(tokens); n += tokensPerBlock {
		name = blockHash(name, tokens[n:n+tokensPerBlock])
		if _, ok := m.pages.Get(name); !ok {
			break
		}
	}
	return n
}

func (m *hashLRU) store(tokens []int32) {
	name := uint64(0)
	for n := 0; n+tokensPerBlock <= len(tokens); n += tokensPerBlock {
		name = blockHash(name, tokens[n:n+tokensPerBlock])
		if _, ok := m.pages.Get(name); !ok {
			m.pages.Add(name, m.next)
			m.next++
		}
	}
}

// radixTree is go-immutable-radix. Its keys are whole prefixes, so blocks of
// long prompts would cost memory quadratic in their length; as a radix tree of
// runs does, it keeps one key a prompt, and a match is the longest common
// prefix with the neighbours of the prompt in key order. Nothing is evicted.
type radixTree struct {
	prompts *radix.Tree[int32]
	next    int32
}

func newRadixTree() cache { return &radixTree{prompts: radix.New[int32]()} }

func (m *radixTree) match(tokens []int32) int {
	key := bytesOf(tokens)
	best := 0
	above := m.prompts.Root().Iterator()
	above.SeekLowerBound(key)
	if k, _, ok := above.Next(); ok {
		best = max(best, common(k, key))
	}
	below := m.prompts.Root().ReverseIterator()
	below.SeekReverseLowerBound(key)
	if k, _, ok := below.Previous(); ok {
		best = max(best, common(k, key))
	}
	return best / 4 / tokensPerBlock * tokensPerBlock
}

func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (m *radixTree) store(tokens []int32) {
	m.prompts, _, _ = m.prompts.Insert(slices.Clone(bytesOf(tokens)), m.next)
	m.next += int32(len(tokens) / tokensPerBlock)
}

var kinds = []struct {
	name string
	make func() cache
}{{"map", newHashMap}, {"lru", newHashLRU}, {"radix", newRadixTree}}

func random(r *rand.Rand, n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = r.Int32N(128_000)
	}
	return t
}

// filled is a cache with a million blocks of prompts of n tokens.
func filled(make func() cache, n int) (c cache, prompts [][]int32) {
	c = make()
	r := rand.New(rand.NewPCG(1, 0))
	for range residentBlocks * tokensPerBlock / n {
		p := random(r, n)
		c.store(p)
		prompts = append(prompts, p)
	}
	return c, prompts
}

// BenchmarkMatch looks up stored prompts in turn; the floor compares the same
// tokens with slices.Equal.
func BenchmarkMatch(b *testing.B) {
	for _, k := range kinds {
		for _, n := range []int{shortText, longText} {
			b.Run(fmt.Sprintf("%s/%dk", k.name, n/1000), func(b *testing.B) {
				c, prompts := filled(k.make, n)
				copies := make([][]int32, len(prompts))
				for i, p := range prompts {
					copies[i] = slices.Clone(p)
				}
				i := 0
				versus(b, func() time.Duration {
					ask := prompts[i%len(prompts)]
					start := time.Now()
					got := c.match(ask)
					took := time.Since(start)
					if got != n {
						b.Fatalf("%d of %d tokens match", got, n)
					}
					return took
				}, func() time.Duration {
					start := time.Now()
					same := slices.Equal(prompts[i%len(prompts)], copies[i%len(prompts)])
					took := time.Since(start)
					if !same {
						b.Fatal("the copies differ")
					}
					i++
					return took
				})
			})
		}
	}
}

// BenchmarkStore stores new prompts; the floor copies the tokens.
func BenchmarkStore(b *testing.B) {
	for _, k := range kinds {
		for _, n := range []int{shortText, longText} {
			b.Run(fmt.Sprintf("%s/%dk", k.name, n/1000), func(b *testing.B) {
				c, _ := filled(k.make, n)
				prompt := random(rand.New(rand.NewPCG(2, 0)), n)
				to := make([]int32, n)
				next := int32(128_000)
				stored := 0
				versus(b, func() time.Duration {
					if _, grows := c.(*radixTree); grows && stored*n >= residentBlocks*tokensPerBlock {
						c, _ = filled(k.make, n)
						stored = 0
					}
					next++
					stored++
					prompt[0] = next
					start := time.Now()
					c.store(prompt)
					return time.Since(start)
				}, func() time.Duration {
					start := time.Now()
					copy(to, prompt)
					return time.Since(start)
				})
			})
		}
	}
}

// versus times both sides in turn and reports their medians and the quotient.
func versus(b *testing.B, baseline, floor func() time.Duration) {
	var above, below []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		above = append(above, baseline())
		below = append(below, floor())
	}
	slices.Sort(above)
	slices.Sort(below)
	x, y := above[len(above)/2], below[len(below)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(x), "baseline-ns")
	b.ReportMetric(float64(y), "floor-ns")
	b.ReportMetric(float64(x)/float64(max(1, y)), "x/floor")
}
