package kvactor_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// small opens an engine of one pool of full attention: four tokens a page, eight pages.
func small(options ...kvactor.Option) *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize = 4, 100
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 8}}, Device: device,
	}, options...)
	must(err)
	return e
}

func closeEngine(e *kvactor.Engine) {
	_, err := e.Close(ctx)
	must(err)
}

// Two prompts, of which the second finds what the first has stored.
func ExampleOpen() {
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 4096,
	}
	engine, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device})
	must(err)

	for _, prompt := range [][]kvactor.Token{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 70, 80}} {
		s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
		must(err)
		fmt.Println(s.Reused(), "of", len(prompt), "tokens reused, pages", s.Tables()[0][0])
		// The host computes the other tokens into the pages, then says so:
		must(s.Commit(ctx, len(prompt), kvactor.Ticket{}))
		must(s.Release(ctx, kvactor.Ticket{}))
	}
	leaked, err := engine.Close(ctx)
	fmt.Println(leaked, "pages leaked", err)
	// Output:
	// 0 of 9 tokens reused, pages [0 1 2]
	// 6 of 8 tokens reused, pages [0 3]
	// 0 pages leaked <nil>
}

// All of a batch is admitted in one message; each request has its own error.
func ExampleEngine_AdmitBatch() {
	e := small()
	defer closeEngine(e)
	batch := []kvactor.Admission{
		{Request: kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}}},
		{Request: kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 40)}},
	}
	fmt.Println(e.AdmitBatch(ctx, batch))
	var refusal *kvactor.Refusal
	fmt.Println(batch[0].Sequence.Len(), errors.As(batch[1].Err, &refusal), refusal.Never)
	// Output:
	// pool wfullh1 needs 10 pages and has 8
	// 5 true true
}

// A decode step: pages for the sampled token, a kernel, then what it has computed.
func ExampleSequence_Append() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4}})
	must(err)
	must(s.Commit(ctx, 4, kvactor.Ticket{}))
	must(s.Append(ctx, 5))
	fmt.Println(s.Tables()[0][0], s.Computed(), "of", s.Len(), "computed")
	must(s.Commit(ctx, 5, kvactor.Ticket{}))
	fmt.Println(s.Computed(), "of", s.Len(), "computed")
	// Output:
	// [0 1] 4 of 5 computed
	// 5 of 5 computed
}

// One step of a batch is one Append for all its sequences.
func ExampleEngine_Append() {
	e := small()
	defer closeEngine(e)
	var steps []kvactor.Step
	for i := range kvactor.Token(2) {
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{i, 2, 3, 4}})
		must(err)
		must(s.Commit(ctx, 4, kvactor.Ticket{}))
		steps = append(steps, kvactor.Step{Sequence: s, Tokens: []kvactor.Token{9}})
	}
	must(e.Append(ctx, steps))
	for _, st := range steps {
		fmt.Printf("block %d is page %d\n", st.Placed[0].Block, st.Placed[0].Page)
	}
	// Output:
	// block 1 is page 2
	// block 1 is page 3
}

// Drafts that were not accepted are dropped.
func ExampleSequence_Rewind() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4}})
	must(err)
	must(s.Commit(ctx, 4, kvactor.Ticket{}))
	must(s.Append(ctx, 5, 60, 70)) // one sampled token and two drafts
	must(s.Commit(ctx, 5, kvactor.Ticket{}))
	must(s.Rewind(ctx, 2))
	fmt.Println(s.Len(), "tokens")
	// Output:
	// 5 tokens
}

// Two sequences are forked in one message: for n-best sampling, after the prompts are
// computed.
func ExampleEngine_Fork() {
	e := small()
	defer closeEngine(e)
	var steps []kvactor.Step
	for i := range kvactor.Token(2) {
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{i, 2, 3, 4, 5}})
		must(err)
		must(s.Commit(ctx, 5, kvactor.Ticket{}))
		steps = append(steps, kvactor.Step{Sequence: s, Forks: 2})
	}
	must(e.Fork(ctx, steps))
	for _, st := range steps {
		for _, f := range st.Forked {
			fmt.Println("pages", f.Tables()[0][0])
		}
	}
	// Output:
	// pages [0 1]
	// pages [0 1]
	// pages [2 3]
	// pages [2 3]
}

// A fork shares all pages and copies the one that it writes to.
func ExampleSequence_Fork() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6}})
	must(err)
	must(s.Commit(ctx, 6, kvactor.Ticket{}))
	forks, err := s.Fork(ctx, 1)
	must(err)
	steps := []kvactor.Step{{Sequence: forks[0], Tokens: []kvactor.Token{7}}}
	must(e.Append(ctx, steps))
	p := steps[0].Placed[0]
	fmt.Printf("block %d: page %d is a copy of page %d\n", p.Block, p.Page, p.Replaced)
	fmt.Println(s.Tables()[0][0], forks[0].Tables()[0][0])
	// Output:
	// block 1: page 2 is a copy of page 1
	// [0 1] [0 2]
}

// What a paged attention kernel takes: a prompt of which four tokens are reused, and a
// decode step of another sequence.
func ExampleInputs_Fill() {
	e := small()
	defer closeEngine(e)
	decoding, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	must(err)
	must(decoding.Commit(ctx, 5, kvactor.Ticket{}))
	must(decoding.Append(ctx, 6))
	prompt, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 9, 9, 9}})
	must(err)

	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{
		{Sequence: prompt}, // all that is not computed
		{Sequence: decoding},
	})
	fmt.Println("lengths", in.SequenceLengths, "query starts", in.QueryStarts,
		"positions", in.Positions)
	fmt.Println("tables", in.Pools[0].BlockTables, "stride", in.Pools[0].Stride,
		"slots", in.Pools[0].Slots)
	// Output:
	// lengths [7 6] query starts [0 3 4] positions [4 5 6 5]
	// tables [0 2 0 1] stride 2 slots [8 9 10 5]
}

// A graph that is captured once for up to two rows and four tokens takes every smaller batch.
func ExampleInputs_Reserve() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}})
	must(err)
	var in kvactor.Inputs
	in.Reserve(e, 2, 4, 3)
	in.Fill(e, []kvactor.Query{{Sequence: s}})
	fmt.Println("lengths", in.SequenceLengths, "query starts", in.QueryStarts)
	fmt.Println("tables", in.Pools[0].BlockTables, "slots", in.Pools[0].Slots)
	// Output:
	// lengths [3 0] query starts [0 3 3]
	// tables [0 -1 -1 -1 -1 -1] slots [0 1 2 -1]
}

// On a simulated device a kernel says which pages it uses: here the page of four reused
// tokens, and the page of the other three.
func ExampleInputs_Accesses() {
	e := small()
	defer closeEngine(e)
	store(e, 1, 2, 3, 4, 5)
	prompt, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 9, 9, 9}})
	must(err)
	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{{Sequence: prompt}})
	reads, writes := in.Accesses(e)
	fmt.Println("reads page", reads[0].Slot.Page, "and writes page", writes[0].Slot.Page)
	// Output:
	// reads page 0 and writes page 2
}

// One message commits what a kernel computes for all sequences of a batch.
func ExampleEngine_Commit() {
	e := small()
	defer closeEngine(e)
	batch := []kvactor.Admission{
		{Request: kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}}},
		{Request: kvactor.AdmitRequest{Tokens: []kvactor.Token{6, 7, 8}}},
	}
	must(e.AdmitBatch(ctx, batch))
	var steps []kvactor.Step
	for _, a := range batch {
		steps = append(steps, kvactor.Step{Sequence: a.Sequence, Computed: a.Sequence.Prompt()})
	}
	must(e.Commit(ctx, steps))
	found, err := e.Lookup(ctx, kvactor.Prefix{Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6}})
	fmt.Println(found.MatchedTokens, "tokens stored", err)
	// Output:
	// 4 tokens stored <nil>
}

// Rejected drafts of a batch are dropped in one message, each sequence as many as it has.
func ExampleEngine_Rewind() {
	e := small()
	defer closeEngine(e)
	var steps []kvactor.Step
	for i := range 2 {
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{kvactor.Token(i), 2, 3, 4}})
		must(err)
		must(s.Commit(ctx, 4, kvactor.Ticket{}))
		must(s.Append(ctx, 5, 60, 70))
		steps = append(steps, kvactor.Step{Sequence: s, Rewind: i + 1})
	}
	must(e.Rewind(ctx, steps))
	fmt.Println(steps[0].Sequence.Len(), steps[1].Sequence.Len(), "tokens")
	// Output:
	// 6 5 tokens
}

// A sequence that is no longer wanted is released with all its pages; what it has
// committed is found by others.
func ExampleEngine_Release() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8}})
	must(err)
	must(s.Commit(ctx, 8, kvactor.Ticket{}))
	must(e.Release(ctx, []kvactor.Step{{Sequence: s}}))
	stats, err := e.Stats(ctx)
	must(err)
	fmt.Printf("%+v\n", stats.Pools[0].Primary)
	// Output:
	// {Total:8 Used:0 Cached:2 Free:6}
}

// A Refusal says whether it helps to wait.
func ExampleEngine_Admit() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 20)})
	must(err)
	_, err = e.Admit(ctx, kvactor.AdmitRequest{
		Tokens: []kvactor.Token{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
	})
	var refusal *kvactor.Refusal
	if errors.As(err, &refusal) && errors.Is(err, kvactor.ErrOutOfPages) && !refusal.Never {
		fmt.Println(err, "- so release something")
		must(s.Release(ctx, kvactor.Ticket{}))
	}
	_, err = e.Admit(ctx, kvactor.AdmitRequest{
		Tokens: []kvactor.Token{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
	})
	fmt.Println(err)
	// Output:
	// pool wfullh1 needs 4 pages, 3 available - so release something
	// <nil>
}

// A system prompt of eight tokens stays for a minute, the rest and the answer go early. A host
// that has TensorRT-LLM's KvCacheRetentionConfig reads it with windows/kvconfig.
func ExampleEngine_Admit_retention() {
	e := small()
	defer closeEngine(e)
	retention := &kvactor.Retention{
		Ranges: []kvactor.RetentionRange{
			{Start: 0, End: 8, Priority: 90, Duration: time.Minute},
			{Start: 8, End: kvactor.EndOfPrompt, Priority: 10},
		},
		Decode: &kvactor.DecodeRetention{Priority: 10},
	}
	s, err := e.Admit(ctx, kvactor.AdmitRequest{
		Tokens: make([]kvactor.Token, 16), Retention: retention,
	})
	must(err)
	must(s.Commit(ctx, 16, kvactor.Ticket{}))
	must(s.Release(ctx, kvactor.Ticket{}))
	all, err := e.Snapshot(ctx, 0)
	must(err)
	for _, event := range all.Events {
		for _, b := range event.Blocks {
			fmt.Println(len(b.Tokens), "tokens of priority", b.Priority)
		}
	}
	// Output:
	// 4 tokens of priority 90
	// 4 tokens of priority 90
	// 4 tokens of priority 10
	// 4 tokens of priority 10
}

// A prompt of six pages begins in the four that are free: its first chunk is admitted, and each
// Append takes the pages of the next. The third finds none until another sequence has ended.
func ExampleSequence_Append_chunks() {
	e := small()
	defer closeEngine(e)
	other, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 16)})
	must(err)
	prompt := make([]kvactor.Token, 24)
	for i := range prompt {
		prompt[i] = kvactor.Token(1 + i)
	}
	const chunk = 8
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt[:chunk]})
	must(err)
	must(s.Commit(ctx, chunk, kvactor.Ticket{}))
	for s.Len() < len(prompt) {
		err := s.Append(ctx, prompt[s.Len():s.Len()+chunk]...)
		if errors.Is(err, kvactor.ErrOutOfPages) {
			fmt.Println(s.Len(), "tokens have pages, the next find none")
			must(other.Release(ctx, kvactor.Ticket{}))
			continue
		}
		must(err)
		must(s.Commit(ctx, s.Len(), kvactor.Ticket{}))
	}
	must(s.Release(ctx, kvactor.Ticket{}))
	found, err := e.Lookup(ctx, kvactor.Prefix{Tokens: prompt})
	must(err)
	fmt.Println(found.MatchedTokens, "of", len(prompt), "tokens are stored")
	// Output:
	// 16 tokens have pages, the next find none
	// 23 of 24 tokens are stored
}

// A beam search of width 2: each step names, for each beam, the beam that it continues. Both
// beams continue beam 1 in the second step, so both get its pages, and the engine copies the
// page that they share when they write to it.
func ExampleEngine_Append_beams() {
	e := small()
	defer closeEngine(e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{
		Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6}, BeamWidth: 2,
	})
	must(err)
	must(s.Commit(ctx, 6, kvactor.Ticket{})) // the kernel computes the prompt once
	fmt.Println("prompt:", s.Tables()[0])
	for _, beams := range [][]kvactor.BeamStep{
		{{Parent: 0, Token: 7}, {Parent: 1, Token: 8}}, // both beams are the prompt until now
		{{Parent: 1, Token: 9}, {Parent: 1, Token: 10}},
	} {
		must(e.Append(ctx, []kvactor.Step{{Sequence: s, Beams: beams}}))
		fmt.Println("tables:", s.Tables()[0])
		var in kvactor.Inputs
		in.Fill(e, []kvactor.Query{{Sequence: s}})
		fmt.Println("a row for each beam, slots", in.Pools[0].Slots, "lengths", in.SequenceLengths)
		must(s.Commit(ctx, s.Len(), kvactor.Ticket{}))
	}
	must(s.Release(ctx, kvactor.Ticket{})) // stores beam 0
	// Output:
	// prompt: [[0 1] [0 1]]
	// tables: [[0 2] [0 1]]
	// a row for each beam, slots [10 6] lengths [7 7]
	// tables: [[0 2] [0 1]]
	// a row for each beam, slots [11 7] lengths [8 8]
}
