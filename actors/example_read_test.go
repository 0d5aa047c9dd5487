package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Memory moves between the pools while sequences run; what they hold survives.
func ExampleEngine_Rebalance() {
	e := openPools([]int{8, 4096}, windows.PageCounts{Primary: 8}, windows.PageCounts{Primary: 8})
	defer e.done()
	e.computed(run(0, 12))
	r, err := e.Rebalance(context.Background(), map[string]float64{"w8h1": 0.25, "wfullh1": 0.75})
	must(err)
	for i, p := range r.Pools {
		fmt.Println(p.Name, p.PrimaryPages, "pages, moved", r.Moved[i])
	}
	_, err = e.Rebalance(context.Background(), map[string]float64{"w8h1": 0.875, "wfullh1": 0.125})
	fmt.Println(err)
	// Output:
	// w8h1 4 pages, moved []
	// wfullh1 12 pages, moved []
	// pool wfullh1 needs 3 pages, 2 available
}

func ExampleEngine_Stats() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	e.stored(run(0, 8))
	e.computed(run(0, 9))
	stats, err := e.Stats(context.Background())
	must(err)
	p := stats.Pools[0]
	fmt.Println(stats.Requests, "requests,", stats.ReusedTokens, "of", stats.PromptTokens,
		"tokens reused")
	fmt.Printf("%s: %+v, %d pages allocated, %d reused\n", p.Name, p.Primary, p.AllocatedPages,
		p.ReusedFull)
	// Output:
	// 2 requests, 8 of 17 tokens reused
	// wfullh1: {Total:4 Used:3 Cached:0 Free:1}, 3 pages allocated, 2 reused
}

// A reader that follows the events has, at all times, the keys of the tree.
func ExampleEngine_Events() {
	e := open(windows.PageCounts{Primary: 2})
	defer e.done()
	e.stored(run(0, 8))
	e.stored(run(100, 4))
	batch, err := e.Events(context.Background())
	must(err)
	for _, v := range batch.Events {
		fmt.Println(v.ID, v.Type, "blocks:", len(v.Blocks)+len(v.Hashes))
	}
	fmt.Println("lost:", batch.Lost)
	// Output:
	// 0 created blocks: 0
	// 1 stored blocks: 2
	// 2 removed blocks: 1
	// 3 stored blocks: 1
	// lost: 0
}

// A snapshot starts a mirror again, for instance after events were lost.
func ExampleEngine_Snapshot() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	e.stored(run(0, 8))
	batch, err := e.Snapshot(context.Background())
	must(err)
	for _, v := range batch.Events {
		for _, b := range v.Blocks {
			fmt.Println(b.Tokens, b.Tier, b.Priority)
		}
	}
	fmt.Println("the next event has id", batch.Next)
	// Output:
	// [0 1 2 3] primary 35
	// [4 5 6 7] primary 35
	// the next event has id 2
}

// Contents is for hosts that check the bytes of every page.
func ExampleEngine_Contents() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	e.stored(run(0, 6))
	blocks, err := e.Contents(context.Background())
	must(err)
	for _, b := range blocks {
		page, tier, _ := b.Pages[0].Page()
		fmt.Println("block", b.Depth, "behind", b.Parent, b.Tokens, "on", tier, "page", page)
	}
	// Output:
	// block 0 behind -1 [0 1 2 3] on primary page 0
	// block 1 behind 0 [4 5] on primary page 1
}

// Check is for tests and for the time after something odd was seen: it walks
// every structure of the engine.
func ExampleEngine_Check() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	e.computed(run(0, 6))
	fmt.Println(e.Check(context.Background()))
	// Output: <nil>
}

func ExampleEngine_Pools() {
	e := openPools([]int{4096, 1024, 4096}, windows.PageCounts{Primary: 4},
		windows.PageCounts{Primary: 8, Secondary: 2})
	defer e.done()
	for _, p := range e.Pools() {
		fmt.Printf("%s: layers %v, %d bytes a page, %d + %d pages\n", p.Name, p.Layers, p.PageBytes,
			p.PrimaryPages, p.SecondaryPages)
	}
	// Output:
	// w1024h1: layers [1], 128 bytes a page, 4 + 0 pages
	// wfullh1: layers [0 2], 256 bytes a page, 8 + 2 pages
}

// A page number of a table and the pool's handle name the memory of a page.
func ExampleEngine_DevicePools() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	tables, err := e.TablesOf(context.Background(), e.computed(run(0, 6)))
	must(err)
	slot := gpu.Slot{Pool: e.DevicePools()[0], Tier: messages.Primary, Page: tables[0][0][1]}
	fmt.Println(slot)
	// Output: pool 0 primary page 1
}

// A host that uses its records again allocates nothing for a request.
func ExampleEngine_Do() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	ctx := context.Background()
	admit := &messages.Admit{Requests: make([]messages.AdmitRequest, 1)}
	release := &messages.Release{Steps: make([]messages.ReleaseStep, 1)}
	for n := range 3 {
		admit.Requests[0].Tokens = run(100*n, 7)
		must(e.Do(ctx, admit))
		release.Steps[0].Sequence = admit.Results[0].Sequence
		must(e.Do(ctx, release))
		fmt.Println(admit.Results[0].Tables, admit.Results[0].Err, release.Results[0].Err)
	}
	// Output:
	// [[[0 1]]] <nil> <nil>
	// [[[0 1]]] <nil> <nil>
	// [[[0 1]]] <nil> <nil>
}

// An event loop that may not wait is called back.
func ExampleEngine_Submit() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	request := &messages.Lookup{Prefix: messages.Prefix{Tokens: run(0, 9)}}
	answered := make(chan error, 1)
	must(e.Submit(request, func(err error) { answered <- err }))
	fmt.Println(<-answered, request.Found.MatchedTokens)
	// Output: <nil> 0
}

// An actor that fails is restarted. The call that it failed in returns ErrInternal; the host
// makes it once more.
func ExampleEngine_recovery() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.done()
	e.stored(run(0, 8))
	must(e.points.Arm("pool:wfullh1"))
	a, err := e.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 9)})
	if errors.Is(err, messages.ErrInternal) {
		a, err = e.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 9)})
	}
	fmt.Println(a.ReusedTokens, err)
	stats, err := e.Stats(context.Background())
	fmt.Println(stats.Restarts, "restart", err)
	// Output:
	// 8 <nil>
	// 1 restart <nil>
}

// Close tells how many pages sequences still held; then nothing is served.
func ExampleEngine_Close() {
	e := open(windows.PageCounts{Primary: 4})
	defer e.system.Shutdown()
	e.computed(run(0, 6))
	leaked, err := e.Close(context.Background())
	fmt.Println(leaked, err)
	_, err = e.Stats(context.Background())
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// the engine is closed
}

// A whole host that is a goroutine: chunked prefill, decode steps, release, and
// a second request that finds all of it. Its kernels run on a stream of its
// own; tickets order them against the engine's copies, and nothing waits on the
// processor.
func Example_host() {
	ctx := context.Background()
	system := newSystem()
	defer system.Shutdown()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	s := setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 12}}}
	engine, err := actors.Spawn(system.Root, s.config(device))
	must(err)
	compute, err := device.NewStream("compute")
	must(err)
	// kernel stands for a forward pass; what it touches is left out here.
	kernel := func(label string, waits []gpu.Ticket) gpu.Ticket {
		ticket, err := device.Launch(compute, gpu.Kernel{Label: label, Waits: waits, Nanos: 1000})
		must(err)
		return ticket
	}

	prompt, answer := run(0, 22), []messages.Token{70, 71, 72}
	a, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: prompt, ChunkTokens: 8})
	must(err)
	ready, computed := a.Ready, a.ReusedTokens
	for computed < len(prompt) { // chunked prefill
		computed = min((computed+8)/tpb*tpb, len(prompt))
		after := kernel("prefill", ready)
		r, err := engine.Commit(ctx, []messages.CommitStep{
			{Sequence: a.Sequence, Computed: computed, After: after},
		})
		must(err)
		must(r[0].Err)
		ready = r[0].Ready
		fmt.Println("computed", computed, "new pages of the window", r[0].NewPages[0])
	}
	var after gpu.Ticket
	for _, token := range answer { // decode: the token sampled before is computed now
		r, err := engine.Append(ctx, []messages.AppendStep{
			{Sequence: a.Sequence, Tokens: []messages.Token{token}},
		})
		must(err)
		must(r[0].Err)
		after = kernel("decode", slices.Concat(ready, r[0].Ready))
		ready = nil
		_, err = engine.Commit(ctx, []messages.CommitStep{
			{Sequence: a.Sequence, Computed: computed, After: after},
		})
		must(err)
		computed++
	}
	_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence, After: after}})
	must(err)

	next := slices.Concat(prompt, answer, run(80, 4)) // the conversation goes on
	b, err := engine.Admit(ctx, messages.AdmitRequest{Tokens: next})
	must(err)
	fmt.Println("reused", b.ReusedTokens, "of", len(next), b.Tables)
	must(device.Sync(ctx, after))
	_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: b.Sequence, Discard: true}})
	must(err)
	leaked, err := engine.Close(ctx)
	fmt.Println(leaked, err)
	// Output:
	// computed 8 new pages of the window [2 3]
	// computed 16 new pages of the window [4 5]
	// computed 22 new pages of the window []
	// reused 24 of 29 [[[-1 -1 -1 -1 4 5 6 7]] [[0 1 2 3 4 5 6 7]]]
	// 0 <nil>
}

// chat is a host that is an actor: it spawns the engine as a child of its own
// and sends it the records of package messages, which come back answered.
type chat struct {
	device gpu.Device
	engine *actors.Engine
	done   chan struct{}
}

// Receive serves one request from admission to release.
func (c *chat) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		engine, err := actors.Spawn(ctx, (&setup{}).config(c.device), actors.WithName("cache"))
		must(err)
		c.engine = engine
		ctx.Request(engine.PID(), &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(0, 6)}}})
	case *messages.Admit:
		a := &m.Results[0]
		fmt.Println("admitted:", a.Tables, a.Err)
		ctx.Request(c.engine.PID(), &messages.Commit{
			Steps: []messages.CommitStep{{Sequence: a.Sequence, Computed: 6}},
		})
	case *messages.Commit:
		s := m.Steps[0].Sequence
		ctx.Request(c.engine.PID(), &messages.Append{
			Steps: []messages.AppendStep{{Sequence: s, Tokens: []messages.Token{7}}},
		})
	case *messages.Append:
		fmt.Println("appended:", m.Results[0].NewPages, m.Results[0].Err)
		ctx.Request(c.engine.PID(), &messages.Release{
			Steps: []messages.ReleaseStep{{Sequence: m.Steps[0].Sequence}},
		})
	case *messages.Release:
		fmt.Println("released:", m.Results[0].Err)
		close(c.done)
	case *messages.Aborted: // an actor of the engine died of the request
		fmt.Println("not served:", m.Err)
		close(c.done)
	}
}

func Example_actor() {
	system := newSystem()
	defer system.Shutdown()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	must(err)
	host := &chat{device: device, done: make(chan struct{})}
	system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return host }))
	<-host.done
	leaked, err := host.engine.Close(context.Background())
	fmt.Println(leaked, err)
	// Output:
	// admitted: [[[0 1]]] <nil>
	// appended: [[]] <nil>
	// released: <nil>
	// 0 <nil>
}
