package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/internal/heap"
)

// Offline policies are caches on paper, to compare the engine with. They have no pages and
// no bytes, count what Atomic counts, and run with --atomic only.
const (
	// Optimal knows the trace: it keeps the blocks whose next use is nearest. No policy
	// has more hits while requests are atomic.
	Optimal = "optimal"
	// S3FIFO is three queues: new blocks pass a small one, and only those that are used
	// again there, or soon after, reach the main one (Yang et al., SOSP 2023).
	S3FIFO = "s3_fifo"
	// Superseded is LRU, but what is left of a run that a prompt has left in its middle
	// goes first.
	Superseded = "superseded_lru"
)

// offlinePolicies makes the caches on paper.
var offlinePolicies = map[string]func(capacity int, trace []request) paperCache{
	Optimal:    newOptimal,
	S3FIFO:     newS3FIFO,
	Superseded: newSuperseded,
}

// Offline tells whether a policy runs on paper only.
func Offline(policy string) bool { return offlinePolicies[policy] != nil }

// OfflineNames lists the policies that run on paper only.
func OfflineNames() []string {
	var names []string
	for name := range offlinePolicies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// request is one prompt of a trace as a list of blocks.
type request struct {
	blocks []int32
	tokens int
}

// paperCache is a cache of blocks. Each request is first looked up, then used.
type paperCache interface {
	has(block int32) bool
	// use stores the blocks of request i of the trace, and evicts others.
	use(i int, blocks []int32)
}

// Paper replays a trace on paper.
func Paper(ctx context.Context, c Config) (*Result, error) {
	if c.TokensPerBlock != 0 || c.HostPages != 0 {
		return nil, fmt.Errorf("policy %s knows neither host pages nor other blocks than the trace's", c.Policy)
	}
	requests, tokens, err := load(c.Trace, c.Limit)
	if err != nil {
		return nil, err
	}
	start, gpu := time.Now(), cost.H100()
	r := &Result{
		Trace: filepath.Base(c.Trace), Mode: modeAtomic, Policy: c.Policy,
		TokensPerBlock: tokens, Pages: c.Pages, Problems: []string{},
	}
	cache := offlinePolicies[c.Policy](c.Pages, requests)
	for i := range requests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		blocks := requests[i].blocks
		hits := 0
		for hits < len(blocks) && cache.has(blocks[hits]) {
			hits++
		}
		r.look(len(blocks), hits)
		r.PromptTokens += int64(len(blocks) * tokens)
		r.ReusedTokens += int64(hits * tokens)
		r.SavedSeconds += cost.Prefill(&c.Costs, &gpu, cost.Span{To: hits * tokens}).Seconds()
		r.PrefillSeconds += cost.Prefill(&c.Costs, &gpu, cost.Span{From: hits * tokens, To: len(blocks) * tokens}).Seconds()
		cache.use(i, blocks)
		if c.Progress != nil {
			c.Progress(r)
		}
	}
	if r.Blocks > 0 {
		r.HitRate = float64(r.Hits) / float64(r.Blocks)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// load reads a trace, at most limit requests of it if that is not 0.
func load(path string, limit int) (requests []request, tokensPerBlock int, err error) {
	reader, err := trace.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for limit == 0 || len(requests) < limit {
		next, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		requests = append(requests, request{blocks: slices.Clone(next.Blocks), tokens: next.PromptTokens})
	}
	return requests, reader.TokensPerBlock(), nil
}

// ranked is a cache that evicts the block of the least rank. A block of the request under
// way is never evicted before all others.
type ranked struct {
	capacity int
	rank     []rank  // by block
	at       []int32 // by block: index in the heap, −1: not cached
	heap     []int32 // of cached blocks, the next victim at the top
}

// rank orders blocks: the least first, of equal ones the greatest depth first.
type rank struct {
	value float64
	depth int32
}

func newRanked(capacity int, trace []request) ranked {
	blocks := int32(0)
	for i := range trace {
		for _, b := range trace[i].blocks {
			blocks = max(blocks, b+1)
		}
	}
	r := ranked{capacity: capacity, rank: make([]rank, blocks), at: make([]int32, blocks)}
	for i := range r.at {
		r.at[i] = -1
	}
	return r
}

func (r *ranked) has(b int32) bool { return r.at[b] >= 0 }

// Before tells whether block a is evicted before block b.
func (r *ranked) Before(a, b int32) bool {
	x, y := r.rank[a], r.rank[b]
	return x.value < y.value || x.value == y.value && x.depth > y.depth
}

// Moved notes the index of a block.
func (r *ranked) Moved(b int32, i int) { r.at[b] = int32(i) }

// set gives a block a rank and stores it.
func (r *ranked) set(b int32, value float64, depth int) {
	r.rank[b] = rank{value, int32(depth)}
	if r.at[b] >= 0 {
		heap.Fix(r.heap, r, int(r.at[b]))
	} else {
		heap.Push(&r.heap, r, b)
	}
}

// shrink evicts until the cache fits.
func (r *ranked) shrink() {
	for len(r.heap) > r.capacity {
		heap.Pop(&r.heap, r)
	}
}

// optimal ranks blocks by the request that uses them next.
type optimal struct {
	ranked
	next [][]int32 // by request and block of it: the request that uses the block next
}

func newOptimal(capacity int, trace []request) paperCache {
	o := &optimal{ranked: newRanked(capacity, trace), next: make([][]int32, len(trace))}
	upcoming := make([]int32, len(o.at))
	for b := range upcoming {
		upcoming[b] = math.MaxInt32
	}
	for i := len(trace) - 1; i >= 0; i-- {
		o.next[i] = make([]int32, len(trace[i].blocks))
		for k, b := range trace[i].blocks {
			o.next[i][k] = upcoming[b]
		}
		for _, b := range trace[i].blocks {
			upcoming[b] = int32(i)
		}
	}
	return o
}

func (o *optimal) use(i int, blocks []int32) {
	for k, b := range blocks {
		o.set(b, -float64(o.next[i][k]), k)
	}
	o.shrink()
}

// superseded is LRU in which superseded tails go first.
type superseded struct {
	ranked
	children [][]int32 // by block: the blocks that have followed it and are cached, at most two
	last     []int     // by block: its last request
}

func newSuperseded(capacity int, trace []request) paperCache {
	s := &superseded{ranked: newRanked(capacity, trace)}
	s.children, s.last = make([][]int32, len(s.at)), make([]int, len(s.at))
	return s
}

func (s *superseded) use(i int, blocks []int32) {
	for k, b := range blocks {
		s.set(b, float64(i)+1, k)
		s.last[b] = i
		if k == 0 {
			continue
		}
		front := blocks[k-1]
		s.children[front] = slices.DeleteFunc(s.children[front], func(c int32) bool { return !s.has(c) })
		if !slices.Contains(s.children[front], b) {
			if others := s.children[front]; len(others) == 1 {
				s.supersede(others[0])
			}
			s.children[front] = append(s.children[front], b)
		}
	}
	s.shrink()
}

// supersede makes a block and all behind it the next victims.
func (s *superseded) supersede(b int32) {
	for {
		s.set(b, float64(s.last[b])-1e9, int(s.rank[b].depth))
		next := slices.DeleteFunc(s.children[b], func(c int32) bool { return !s.has(c) })
		if s.children[b] = next; len(next) != 1 {
			return
		}
		b = next[0]
	}
}

// s3fifo is the cache with a small, a main and a ghost queue.
type s3fifo struct {
	capacity    int
	small, main []int32
	ghost       []int32
	where       []uint8 // by block: nowhere, small, main, ghost
	uses        []uint8
	running     []int // by block: the last request that used it
}

const (
	nowhere uint8 = iota
	inSmall
	inMain
	inGhost
)

func newS3FIFO(capacity int, trace []request) paperCache {
	n := len(newRanked(capacity, trace).at)
	return &s3fifo{capacity: capacity, where: make([]uint8, n), uses: make([]uint8, n), running: make([]int, n)}
}

func (s *s3fifo) has(b int32) bool { return s.where[b] == inSmall || s.where[b] == inMain }

func (s *s3fifo) use(i int, blocks []int32) {
	blocks = blocks[:min(len(blocks), s.capacity)]
	for _, b := range blocks {
		s.running[b] = i + 1
	}
	// The deepest block is inserted first, so that it is the first to be evicted.
	for k := len(blocks) - 1; k >= 0; k-- {
		b := blocks[k]
		if s.has(b) {
			s.uses[b] = min(s.uses[b]+1, 3)
			continue
		}
		for len(s.small)+len(s.main) >= s.capacity {
			s.evict(i + 1)
		}
		if s.where[b] == inGhost {
			s.where[b] = inMain
			s.main = append(s.main, b)
		} else {
			s.where[b] = inSmall
			s.small = append(s.small, b)
		}
		s.uses[b] = 0
	}
}

// evict removes one block; those of the running request go to the end of their queue.
func (s *s3fifo) evict(running int) {
	for {
		queue, state := &s.main, inMain
		if len(s.small)*10 >= s.capacity || len(s.main) == 0 {
			queue, state = &s.small, inSmall
		}
		b := (*queue)[0]
		*queue = (*queue)[1:]
		switch {
		case s.running[b] == running:
			s.main = append(s.main, b)
			s.where[b] = inMain
		case state == inSmall && s.uses[b] > 0:
			s.where[b], s.uses[b] = inMain, 0
			s.main = append(s.main, b)
		case state == inSmall:
			s.where[b] = inGhost
			s.ghost = append(s.ghost, b)
			for len(s.ghost) > s.capacity {
				if g := s.ghost[0]; s.where[g] == inGhost {
					s.where[g] = nowhere
				}
				s.ghost = s.ghost[1:]
			}
			return
		case s.uses[b] > 0:
			s.uses[b]--
			s.main = append(s.main, b)
		default:
			s.where[b] = nowhere
			return
		}
	}
}
