package evict_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/pool/evict"
)

// fifo evicts what came first.
type fifo struct {
	came []int // by page: when its contents came to a queue first; 0: it has none, or not yet
	last int
}

func init() { // before engines open: configurations, files and flags may name it then
	evict.Register("fifo", func(*evict.Core, evict.Options) evict.Policy { return &fifo{} })
}

func (f *fifo) NewQueue() evict.Queue                 { return &fifoQueue{policy: f} }
func (f *fifo) Used([]kvactor.PageID, *evict.Request) {} // a use changes nothing
func (f *fifo) Forget(p int32)                        { f.came[p] = 0 }
func (f *fifo) Move(from, to int32)                   { f.came[to], f.came[from] = f.came[from], 0 }
func (f *fifo) Resize(pages int) {
	f.came = slices.Grow(f.came, pages)[:pages]
}

// fifoQueue is the pages of one tenant and one priority that may be evicted.
type fifoQueue struct {
	policy *fifo
	pages  []int32 // in the order in which their contents came
}

func (q *fifoQueue) compare(a, b int32) int {
	return cmp.Compare(q.policy.came[a], q.policy.came[b])
}

// Add adds a page. One that a request has used again goes back to its place.
func (q *fifoQueue) Add(p int32) {
	if q.policy.came[p] == 0 {
		q.policy.last++
		q.policy.came[p] = q.policy.last
	}
	at, _ := slices.BinarySearchFunc(q.pages, p, q.compare)
	q.pages = slices.Insert(q.pages, at, p)
}

func (q *fifoQueue) Remove(p int32) {
	at, _ := slices.BinarySearchFunc(q.pages, p, q.compare)
	q.pages = slices.Delete(q.pages, at, at+1)
}

func (q *fifoQueue) First() int32           { return q.pages[0] }
func (q *fifoQueue) Before(a, b int32) bool { return q.compare(a, b) < 0 }
func (q *fifoQueue) Peek(n int, list []int32) []int32 {
	return append(list, q.pages[:min(n, len(q.pages))]...)
}

// A policy of one's own in an engine: of prompts 1, 2, 1 and 3, the first blocks that came are
// those of 1, and the least recently used ones those of 2.
func ExampleRegister() {
	for _, policy := range []string{evict.LRU, "fifo"} {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		must(err)
		cache := kvactor.DefaultCache()
		cache.TokensPerBlock, cache.EvictionPolicy = 4, policy
		engine, err := kvactor.Open(kvactor.Config{
			Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
				MaxSeqLen: 64},
			Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 7}},
		})
		must(err)
		fmt.Print(policy, " reuses")
		for _, token := range []kvactor.Token{1, 2, 1, 3, 1} {
			s, err := engine.Admit(context.Background(), kvactor.AdmitRequest{
				Tokens: slices.Repeat([]kvactor.Token{token}, 9), // three blocks
			})
			must(err)
			fmt.Print(" ", s.Reused())
			must(s.Commit(context.Background(), 9, kvactor.Ticket{}))
			must(s.Release(context.Background(), kvactor.Ticket{}))
		}
		fmt.Println()
		_, err = engine.Close(context.Background())
		must(err)
	}
	// Output:
	// priority_lru reuses 0 0 8 0 8
	// fifo reuses 0 0 8 0 4
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
