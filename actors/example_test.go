package actors_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The smallest host: an engine on a simulated device, two prompts, the second
// of which finds the first one's block.
func ExampleSpawn() {
	ctx := context.Background()
	system := newSystem()
	defer system.Shutdown()
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	model := windows.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 64, DType: windows.BFloat16, MaxSeqLen: 4096,
	}
	engine, err := actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Device: device})
	must(err)

	for _, prompt := range [][]messages.Token{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 7}} {
		a, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		must(err)
		fmt.Println("reused", a.ReusedTokens, "tokens; page table", a.Tables[0][0])
		_, err = engine.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: len(prompt)}})
		must(err)
		_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})
		must(err)
	}
	leaked, err := engine.Close(ctx)
	fmt.Println(leaked, "pages leaked", err)
	// Output:
	// reused 0 tokens; page table [0 1]
	// reused 4 tokens; page table [0 2]
	// 0 pages leaked <nil>
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// example is an engine for the examples below, with the prompt 0 … 8 stored.
type example struct {
	*actors.Engine
	points *enginetest.Failpoints
	system *actor.ActorSystem
}

// open starts one pool of full attention: pages on the device, pages in host
// memory, four tokens a page.
func open(counts windows.PageCounts) example {
	return openPools([]int{4096}, counts)
}

func openPools(attention []int, counts ...windows.PageCounts) example {
	system := newSystem()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.EventBufferMaxSize, cache.OffloadAhead = 4,
		attention, 100, false
	model := windows.Model{
		Layers: len(attention), KVHeads: []int{1}, HeadDim: 8, DType: windows.Float16, MaxSeqLen: 4096,
	}
	points := &enginetest.Failpoints{}
	engine, err := actors.Spawn(system.Root,
		actors.Config{Model: model, Cache: cache, Pages: counts, Device: device},
		enginetest.WithFailpoints(points))
	must(err)
	return example{engine, points, system}
}

// computed admits a prompt and says that its KV is there.
func (e example) computed(tokens []messages.Token) messages.SequenceID {
	ctx := context.Background()
	a, err := e.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
	must(err)
	_, err = e.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: len(tokens)}})
	must(err)
	return a.Sequence
}

// stored leaves a prompt in the cache.
func (e example) stored(tokens []messages.Token) {
	_, err := e.Release(context.Background(), []messages.ReleaseStep{{Sequence: e.computed(tokens)}})
	must(err)
}

func (e example) done() {
	_, err := e.Close(context.Background())
	must(err)
	e.system.Shutdown()
}

// Values are decided without the engine: a host can refuse a request early.
func ExampleEngine_Validate() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	fmt.Println(e.Validate(messages.AdmitRequest{Tokens: run(0, 4), ChunkTokens: 6}))
	// Output: chunk_tokens 6 is not a positive multiple of tokens_per_block 4
}

// A prompt that is stored is reused but for one token, which must be computed
// to have logits: here inside a block, by a copy on the device.
func ExampleEngine_Admit() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	e.stored(run(0, 8))
	a, err := e.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 8)})
	fmt.Println(a.ReusedTokens, a.MissReason, err)
	fmt.Printf("%+v %v\n", a.Reuse[0], a.Tables[0][0])
	_, err = e.Admit(context.Background(), messages.AdmitRequest{Tokens: run(100, 40)})
	fmt.Println(errors.Is(err, messages.ErrOutOfPages), err)
	// Output:
	// 7 hit <nil>
	// {Full:1 Partial:1 PartialReuse:copy Onboarded:0} [0 2]
	// true pool wfullh1 needs 10 pages and has 8
}

// All matches of a batch are claimed before any page is taken; each request is
// refused for itself.
func ExampleEngine_AdmitBatch() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	results, err := e.AdmitBatch(context.Background(), []messages.AdmitRequest{
		{Tokens: run(0, 9)}, {Tokens: run(100, 9)}, {Tokens: run(200, 3)},
	})
	must(err)
	for _, a := range results {
		fmt.Println(a.Tables, a.Err)
	}
	// Output:
	// [[[0 1 2]]] <nil>
	// [] pool wfullh1 needs 3 pages, 1 available
	// [[[3]]] <nil>
}

// Blocks may be matched by others as soon as they are committed, long before
// their sequence ends.
func ExampleEngine_Commit() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	a, err := e.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 10)})
	must(err)
	for _, computed := range []int{4, 8, 10} { // chunks end at block boundaries
		results, err := e.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: computed}})
		must(errors.Join(err, results[0].Err))
		found, err := e.Lookup(ctx, messages.Prefix{Tokens: run(0, 10)})
		must(err)
		fmt.Println(found.MatchedTokens)
	}
	// Output:
	// 4
	// 8
	// 8
}

// One call is one decode step of the whole batch. The token sampled last has no
// KV yet: Computed names the tokens that this step computes.
func ExampleEngine_Append() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	a, b := e.computed(run(0, 4)), e.computed(run(100, 6))
	results, err := e.Append(context.Background(), []messages.AppendStep{
		{Sequence: a, Tokens: []messages.Token{7}, Computed: 4},
		{Sequence: b, Tokens: []messages.Token{8}, Computed: 6},
	})
	must(err)
	for _, r := range results {
		fmt.Println("new pages", r.NewPages[0], r.Err)
	}
	// Output:
	// new pages [3] <nil>
	// new pages [] <nil>
}

// Rejected drafts are taken back; what was not committed was never stored.
func ExampleEngine_Rewind() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	s := e.computed(run(0, 4))
	_, err := e.Append(ctx, []messages.AppendStep{
		{Sequence: s, Tokens: []messages.Token{5, 6, 7, 8, 9}},
	})
	must(err)
	fmt.Println(e.RewindOne(ctx, s, 3))
	fmt.Println(e.RewindOne(ctx, s, 3))
	tables, err := e.TablesOf(ctx, s)
	fmt.Println(tables[0][0], err)
	// Output:
	// <nil>
	// rewind of 3 tokens: 2 are generated
	// [0 1] <nil>
}

// Forks share all pages until they write: the page that a token falls into is
// copied for all but the last that holds it.
func ExampleEngine_Fork() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	s := e.computed(run(0, 6))
	forks, err := e.ForkOne(ctx, s, 1)
	must(err)
	results, err := e.Append(ctx, []messages.AppendStep{
		{Sequence: s, Tokens: []messages.Token{7}}, {Sequence: forks[0], Tokens: []messages.Token{8}},
	})
	must(err)
	fmt.Println("copied to", results[0].NewPages[0], results[1].NewPages[0])
	// Output: copied to [2] []
}

// What a sequence computed stays until it is evicted, its answer included.
func ExampleEngine_Release() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	s := e.computed(run(0, 7))
	_, err := e.Append(ctx, []messages.AppendStep{{Sequence: s, Tokens: run(7, 3), Computed: 9}})
	must(err)
	_, err = e.Release(ctx, []messages.ReleaseStep{{Sequence: s}})
	must(err)
	found, err := e.Lookup(ctx, messages.Prefix{Tokens: run(0, 20)})
	fmt.Println(found.MatchedTokens, err)
	// Output: 9 <nil>
}

// The window of the first pool has passed its first block.
func ExampleEngine_Tables() {
	e := openPools([]int{8, 4096}, windows.PageCounts{Primary: 8}, windows.PageCounts{Primary: 8})
	defer e.done()
	tables, err := e.TablesOf(context.Background(), e.computed(run(0, 12)))
	must(err)
	for i, p := range e.Pools() {
		fmt.Println(p.Name, tables[i][0])
	}
	// Output:
	// w8h1 [-1 1 2]
	// wfullh1 [0 1 2]
}

// Lookup changes nothing and touches nothing.
func ExampleEngine_Lookup() {
	e := open(windows.PageCounts{Primary: 4, Secondary: 4})
	defer e.done()
	e.stored(run(0, 8))
	e.stored(run(100, 12)) // takes the last free pages and one more
	found, err := e.Lookup(context.Background(), messages.Prefix{Tokens: run(0, 9)})
	fmt.Printf("%+v %v\n", found, err)
	// Output: {MatchedTokens:8 PrimaryTokens:4 SecondaryTokens:4 AttentionTokens:0 StoredTokens:0} <nil>
}

func ExampleEngine_Pin() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	ctx := context.Background()
	e.stored(run(0, 8))
	pinned, err := e.Pin(ctx, messages.Prefix{Tokens: run(0, 8)})
	must(err)
	fmt.Println(pinned.Tokens, "tokens pinned")
	_, err = e.Admit(ctx, messages.AdmitRequest{Tokens: run(100, 12)})
	fmt.Println(err)
	// Output:
	// 8 tokens pinned
	// pool wfullh1 needs 3 pages, 2 available
}

func ExampleEngine_Unpin() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	ctx := context.Background()
	e.stored(run(0, 8))
	pinned, err := e.Pin(ctx, messages.Prefix{Tokens: run(0, 8)})
	must(err)
	fmt.Println(e.Unpin(ctx, pinned.Pin))
	fmt.Println(e.Unpin(ctx, pinned.Pin))
	_, err = e.Admit(ctx, messages.AdmitRequest{Tokens: run(100, 12)})
	fmt.Println(err)
	// Output:
	// <nil>
	// pin 1 does not exist
	// <nil>
}

// All that begins with these tokens is forgotten; what is shorter stays.
func ExampleEngine_Invalidate() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	e.stored(run(0, 16))
	blocks, err := e.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 7)}})
	fmt.Println(blocks, "blocks forgotten", err)
	found, err := e.Lookup(ctx, messages.Prefix{Tokens: run(0, 17)})
	fmt.Println(found.MatchedTokens, err)
	// Output:
	// 3 blocks forgotten <nil>
	// 4 <nil>
}

// What went to host memory comes back before it is needed.
func ExampleEngine_Prefetch() {
	e := open(windows.PageCounts{Primary: 4, Secondary: 8})
	defer e.done()
	ctx := context.Background()
	e.stored(run(0, 12))
	e.stored(run(100, 16))
	pages, err := e.Prefetch(ctx, messages.Prefix{Tokens: run(0, 12)})
	fmt.Println(pages, "pages onboarded", err)
	found, err := e.Lookup(ctx, messages.Prefix{Tokens: run(0, 13)})
	fmt.Println(found.PrimaryTokens, err)
	// Output:
	// 3 pages onboarded <nil>
	// 12 <nil>
}

func ExampleEngine_Reset() {
	e := open(windows.PageCounts{Primary: 8})
	defer e.done()
	ctx := context.Background()
	e.stored(run(0, 16))
	fmt.Println(e.Reset(ctx))
	stats, err := e.Stats(ctx)
	fmt.Printf("%+v %v\n", stats.Pools[0].Primary, err)
	// Output:
	// <nil>
	// {Total:8 Used:0 Cached:0 Free:8} <nil>
}
