package kvactor_test

import (
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

// system is a prompt that many requests begin with: two blocks of four tokens.
var system = kvactor.Prefix{Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8}}

// question is a prompt behind it.
var question = kvactor.Prefix{Tokens: append(system.Tokens[:8:8], 9)}

// store computes a prompt and releases it.
func store(e *kvactor.Engine, tokens ...kvactor.Token) {
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: tokens})
	must(err)
	must(s.Commit(ctx, len(tokens), kvactor.Ticket{}))
	must(s.Release(ctx, kvactor.Ticket{}))
}

// hosted opens an engine of two device pages and four host pages.
func hosted() *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.OffloadAhead = 4, false
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 2, Secondary: 4}}, Device: device,
	})
	must(err)
	return e
}

// Lookup tells a scheduler what a prompt would save, and changes nothing.
func ExampleEngine_Lookup() {
	e := hosted()
	defer closeEngine(e)
	store(e, system.Tokens...)
	store(e, 50, 51, 52, 53) // evicts the second block to host memory
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(found.MatchedTokens, "tokens,", found.PrimaryTokens,
		"on the device,", found.SecondaryTokens, "in host memory")
	// Output:
	// 8 tokens, 4 on the device, 4 in host memory
}

// Prefetch starts the copies of a prompt that is about to come.
func ExampleEngine_Prefetch() {
	e := hosted()
	defer closeEngine(e)
	store(e, system.Tokens...)
	store(e, 50, 51, 52, 53)
	pages, err := e.Prefetch(ctx, system)
	must(err)
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(pages, "page copied,", found.PrimaryTokens, "tokens on the device")
	// Output:
	// 1 page copied, 8 tokens on the device
}

// A pin keeps a prompt that every request has, whatever else comes.
func ExampleEngine_Pin() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	pinned, err := e.Pin(ctx, system)
	must(err)
	store(e, make([]kvactor.Token, 24)...) // all other pages
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(pinned.Tokens, "tokens pinned,", found.MatchedTokens, "still there")
	must(e.Unpin(ctx, pinned.Pin))
	// Output:
	// 8 tokens pinned, 8 still there
}

// After Unpin the blocks stay until their pages are needed.
func ExampleEngine_Unpin() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	pinned, err := e.Pin(ctx, system)
	must(err)
	must(e.Unpin(ctx, pinned.Pin))
	fmt.Println("again:", e.Unpin(ctx, pinned.Pin))
	store(e, make([]kvactor.Token, 32)...) // all pages
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(found.MatchedTokens, "tokens left")
	// Output:
	// again: pin 1 does not exist
	// 0 tokens left
}

// Everything that a conversation has stored alone is forgotten when it ends.
func ExampleEngine_Invalidate() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{
		Session: "chat 7", Tokens: append(system.Tokens[:8:8], 20, 21, 22, 23, 24),
	})
	must(err)
	must(s.Commit(ctx, 13, kvactor.Ticket{}))
	must(s.Release(ctx, kvactor.Ticket{}))
	blocks, err := e.Invalidate(ctx, kvactor.Selector{Session: "chat 7"})
	must(err)
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(blocks, "blocks forgotten, the shared", found.MatchedTokens, "tokens kept")
	// Output:
	// 2 blocks forgotten, the shared 8 tokens kept
}

// After new weights are loaded nothing of the cache is right any more.
func ExampleEngine_Reset() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	must(e.Reset(ctx))
	found, err := e.Lookup(ctx, question)
	must(err)
	fmt.Println(found.MatchedTokens, "tokens stored")
	// Output:
	// 0 tokens stored
}

// Two readers of events, such as two routers, each get all events at their own pace. The
// zero reader was open from the start, the other gets what happens from OpenReader on.
func ExampleEngine_Events() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	late, err := e.OpenReader(ctx)
	must(err)
	must(e.Reset(ctx))
	for _, reader := range []kvactor.ReaderID{0, late} {
		batch, err := e.Events(ctx, reader)
		must(err)
		for _, event := range batch.Events {
			fmt.Println("reader", reader, "event", event.ID, event.Type)
		}
	}
	must(e.CloseReader(ctx, late))
	// Output:
	// reader 0 event 0 created
	// reader 0 event 1 stored
	// reader 0 event 2 removed
	// reader 0 event 3 cleared
	// reader 1 event 2 removed
	// reader 1 event 3 cleared
}

// A snapshot starts a mirror of the cache; the reader's events go on behind it.
func ExampleEngine_Snapshot() {
	e := small()
	defer closeEngine(e)
	store(e, system.Tokens...)
	all, err := e.Snapshot(ctx, 0)
	must(err)
	for _, event := range all.Events {
		for _, b := range event.Blocks {
			fmt.Println(b.Tokens, b.Tier, "priority", b.Priority)
		}
	}
	must(e.Reset(ctx))
	batch, err := e.Events(ctx, 0)
	must(err)
	fmt.Println("next is event", all.Next, "- it is", batch.Events[0].Type)
	// Output:
	// [1 2 3 4] primary priority 35
	// [5 6 7 8] primary priority 35
	// next is event 2 - it is removed
}

// limited opens an engine with a pool for a window of eight tokens and one of full
// attention.
func limited() *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, []int{8, 64}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 10}, {Primary: 10}}, Device: device,
	})
	must(err)
	return e
}

// Short prompts need many pages of the window; the tables of sequences follow what moves.
func ExampleEngine_Rebalance() {
	e := limited()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: system.Tokens})
	must(err)
	r, err := e.Rebalance(ctx, map[string]float64{"w8h1": 0.75, "wfullh1": 0.25})
	must(err)
	for _, p := range r.Pools {
		fmt.Println(p.Name, p.PrimaryPages, "pages")
	}
	fmt.Println("tables", s.Tables())
	// Output:
	// w8h1 15 pages
	// wfullh1 5 pages
	// tables [[[0 1]] [[0 1]]]
}

// Messages to the actors below change page tables that the handle cannot know of; Refresh
// reads them again.
func ExampleEngine_Refresh() {
	e := limited()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: system.Tokens})
	must(err)
	_, err = e.Actors().Resize(ctx, []int{6, 12}) // not by Engine.Resize
	must(err)
	must(e.Refresh(ctx, s))
	fmt.Println("tables", s.Tables())
	// Output:
	// tables [[[0 1]] [[0 1]]]
}
