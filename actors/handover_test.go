package actors_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// exported writes a sequence to memory and ends the hold.
func exported(t testing.TB, r *rig, id messages.SequenceID) []byte {
	t.Helper()
	var stream bytes.Buffer
	x, err := actors.HandoversOf(r.Engine).Export(context.Background(), id, &stream)
	require.NoError(t, err)
	assert.EqualValues(t, stream.Len(), x.Bytes)
	require.NoError(t, x.Release(context.Background()))
	require.NoError(t, x.Release(context.Background()), "the second does nothing")
	return stream.Bytes()
}

// arrived is the host's view of a sequence that has come.
func arrived(m *actors.Imported) *sequence {
	return &sequence{
		id: m.Sequence, prompt: m.Prompt, computed: m.Computed, ready: m.Ready,
		chains: host.Chains(messages.Prefix{Namespace: m.Namespace, Tokens: m.Tokens,
			Multimodal: m.Multimodal}),
	}
}

// handed sends a sequence over a connection.
func handed(
	t testing.TB, from, to *rig, id messages.SequenceID,
) (*actors.Exported, *actors.Imported) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	type sent struct {
		x   *actors.Exported
		err error
	}
	done := make(chan sent)
	go func() {
		x, err := actors.HandoversOf(from.Engine).Send(context.Background(), id, a)
		done <- sent{x, err}
	}()
	m, err := actors.HandoversOf(to.Engine).Receive(context.Background(), b)
	require.NoError(t, err)
	s := <-done
	require.NoError(t, s.err)
	return s.x, m
}

// stateful is a setup with every kind of pool.
func stateful() setup {
	return setup{
		windows: []int{full, 8, 16},
		pages:   []windows.PageCounts{{Primary: 24}, {Primary: 24}, {Primary: 24}, {Primary: 8}},
		change: func(c *windows.Config) {
			c.SinkTokenLength = 4
			c.MaxAttentionWindow = append(c.MaxAttentionWindow, full)
		},
		model: func(m *windows.Model) {
			m.KVHeads = []int{1, 1, 1, 0}
			m.States = []windows.State{{Layers: []int{m.Layers}, Bytes: 24}}
			m.Layers++
		},
	}
}

// limited is a setup with full attention and two windows, one of them with sinks.
func limited(pages int) setup {
	return setup{
		windows: []int{full, 8, 16},
		pages:   slices.Repeat([]windows.PageCounts{{Primary: pages, Secondary: 4}}, 3),
		change:  func(c *windows.Config) { c.SinkTokenLength = 4 },
	}
}

// A sequence goes on at another engine where it was, with the right bytes in every pool,
// and the receiver takes pages for the windows and no more.
func TestHandover(t *testing.T) { handOver(t, 0) }

// An import returns while the device still copies from its staging memory. The next one uses the
// memory again, and waits for the copies.
func TestStagingMemoryIsUsedAgain(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	stream := exported(t, from, s.id)
	require.NoError(t, from.release(s))
	to.device.late.Store(true)
	before := to.device.taken.Load()
	for range 5 {
		m, err := actors.HandoversOf(to.Engine).Import(t.Context(), bytes.NewReader(stream))
		require.NoError(t, err)
		to.verify(arrived(m))
		require.NoError(t, to.release(arrived(m)))
		require.NoError(t, to.Reset(t.Context()))
	}
	assert.EqualValues(t, 1, to.device.taken.Load()-before)
	to.device.late.Store(false)
	from.close()
	to.close()
}

// Between groups the shares of all ranks are handed over, each to the same rank.
func TestHandoverBetweenGroups(t *testing.T) {
	handOver(t, 3)
	two, three := limited(24), limited(16)
	two.ranks, three.ranks = 2, 3
	from, to := newRig(t, two), newRig(t, three)
	s, err := from.start(run(0, 9))
	require.NoError(t, err)
	_, err = actors.HandoversOf(to.Engine).Import(context.Background(),
		bytes.NewReader(exported(t, from, s.id)))
	require.ErrorIs(t, err, messages.ErrNotSupported)
	require.ErrorContains(t, err, "number of ranks is 3 here, 2 in the stream")
	require.NoError(t, from.release(s))
	from.close()
	to.close()
}

// handOver hands a sequence over between engines over so many devices, 0 for one that is
// no group.
func handOver(t *testing.T, ranks int) {
	sender, receiver := limited(24), limited(16)
	sender.ranks, receiver.ranks = ranks, ranks
	from, to := newRig(t, sender), newRig(t, receiver)
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	require.NoError(t, from.decode(from.writer, s, 900))
	stream := exported(t, from, s.id)
	require.NoError(t, from.release(s))
	from.verify()

	m, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, append(run(0, 33), 900), m.Tokens)
	assert.Equal(t, []int{33, 33}, []int{m.Prompt, m.Computed})
	assert.EqualValues(t, len(stream), m.Bytes)
	got := arrived(m)
	to.verify(got)
	for i := range 20 {
		require.NoError(t, to.decode(to.writer, got, messages.Token(901+i)))
	}
	to.verify(got)
	require.NoError(t, to.release(got))
	to.verify()
	stats, err := to.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences)
	from.close()
	to.close()
}

// A receiver shares what it has, and over a connection only the rest is sent.
func TestHandoverOfWhatIsThere(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	to.store(run(0, 24))
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	x, m := handed(t, from, to, s.id)
	assert.Equal(t, 6+2+2, m.SharedPages,
		"six blocks of full attention, two sinks, two blocks of the larger window")
	assert.Equal(t, x.Pages, m.Pages)
	first := arrived(m)
	to.verify(first)

	stream := exported(t, from, s.id)
	again, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, 3, again.Pages, "the partial block of each pool")
	second := arrived(again)
	to.verify(first, second)
	require.NoError(t, to.decode(to.writer, first, 7))
	require.NoError(t, to.decode(to.writer, second, 8))
	to.verify(first, second)
	for _, s := range []*sequence{first, second} {
		require.NoError(t, to.release(s))
	}
	require.NoError(t, from.release(s))
	from.verify()
	to.verify()
	from.close()
	to.close()
}

// Forks are handed over one after the other. The blocks that they share go over the
// connection once, and at the receiver they are one sequence's forks no longer, but share
// pages all the same.
func TestHandoverOfForks(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	s, err := from.start(run(0, 33))
	require.NoError(t, err)
	forks, err := from.Fork(context.Background(), []messages.ForkStep{{Sequence: s.id, Count: 1}})
	require.NoError(t, err)
	require.NoError(t, forks[0].Err)
	fork := &sequence{id: forks[0].Forks[0], prompt: s.prompt, computed: s.computed,
		chains: slices.Clone(s.chains), ready: s.ready}
	for i := range messages.Token(6) {
		require.NoError(t, from.decode(from.writer, s, 700+i))
		require.NoError(t, from.decode(from.writer, fork, 800+i))
	}
	from.verify(s, fork)
	_, first := handed(t, from, to, s.id)
	_, second := handed(t, from, to, fork.id)
	assert.Zero(t, first.SharedPages)
	assert.Equal(t, append(run(0, 33), 800, 801, 802, 803, 804, 805), second.Tokens)
	assert.GreaterOrEqual(t, second.SharedPages, 8,
		"the eight whole blocks of the prompt with full attention")
	assert.Less(t, second.Pages, first.Pages)
	list := []*sequence{arrived(first), arrived(second)}
	to.verify(list...)
	for i, got := range list {
		require.NoError(t, to.decode(to.writer, got, messages.Token(900+i)))
	}
	to.verify(list...)
	for i, got := range list {
		require.NoError(t, to.release(got))
		require.NoError(t, from.release([]*sequence{s, fork}[i]))
	}
	from.close()
	to.close()
}

// The importer reads not a byte beyond the stream: a host's own words may follow.
func TestImportStopsAtTheEnd(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	s, err := from.start(run(0, 9))
	require.NoError(t, err)
	r := io.MultiReader(bytes.NewReader(exported(t, from, s.id)), bytes.NewReader([]byte("behind")))
	m, err := actors.HandoversOf(to.Engine).Import(context.Background(), r)
	require.NoError(t, err)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "behind", string(rest))
	require.NoError(t, to.release(arrived(m)))
	require.NoError(t, from.release(s))
	from.close()
	to.close()
}

// Working pages of recurrent layers go with the sequence, whole.
func TestHandoverOfStates(t *testing.T) {
	ctx := context.Background()
	from, to := newRig(t, stateful()), newRig(t, stateful())
	launch := func(r *rig, id messages.SequenceID, chains []host.Chain, computed, n int,
		ready []messages.Ticket) messages.Ticket {
		tables, err := r.TablesOf(ctx, id)
		require.NoError(t, err)
		ticket, err := r.writer.Launch(host.Step{
			Label: "compute", Waits: ready,
			Reads:  []host.Span{{Chains: chains, To: computed, Table: host.Beam(tables, 0)}},
			Writes: []host.Span{{Chains: chains, From: computed, To: n, Table: host.Beam(tables, 0)}},
			States: []host.StateUpdate{{Pool: 3, Page: tables[3][0][0],
				From: host.StateAfter(chains, computed), To: host.StateAfter(chains, n)}},
		})
		require.NoError(t, err)
		return ticket
	}
	a, err := from.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 19)})
	require.NoError(t, err)
	chains := host.Chains(messages.Prefix{Tokens: run(0, 19)})
	after := launch(from, a.Sequence, chains, 0, 19, a.Ready)
	committed, err := from.Commit(ctx,
		[]messages.CommitStep{{Sequence: a.Sequence, Computed: 19, After: after}})
	require.NoError(t, err)
	require.NoError(t, committed[0].Err)
	stream := exported(t, from, a.Sequence)

	m, err := actors.HandoversOf(to.Engine).Import(ctx, bytes.NewReader(stream))
	require.NoError(t, err)
	got := arrived(m)
	appended, err := to.Append(ctx, []messages.AppendStep{{Sequence: m.Sequence, Tokens: run(70, 1)}})
	require.NoError(t, err)
	require.NoError(t, appended[0].Err)
	got.chains = append(got.chains, got.chains[18].Next(70, messages.Cover{}))
	// The kernel reads the state that has come, and everything before it.
	last := launch(to, m.Sequence, got.chains, 19, 20, append(m.Ready, appended[0].Ready...))
	to.awaitKernels()
	assert.Empty(t, to.writer.Problems())
	for r, step := range map[*rig]messages.ReleaseStep{from: {Sequence: a.Sequence, After: after},
		to: {Sequence: m.Sequence, After: last}} {
		results, err := r.Release(ctx, []messages.ReleaseStep{step})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		require.NoError(t, r.Check(ctx))
		r.close()
	}
}

// Items, salts, sessions and retention are those of the source.
func TestHandoverOfAttributes(t *testing.T) {
	ctx := context.Background()
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	request := messages.AdmitRequest{
		Tokens: run(0, 21), Namespace: messages.Namespace{Salt: "\xff salt", HasLoRA: true}, Session: "s",
		Multimodal: []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 2, Length: 5},
			{Hash: [32]byte{1}, Start: 7, Length: 3}},
		Retention: &messages.Retention{
			Ranges: []messages.RetentionRange{{Start: 4, End: messages.EndOfPrompt, Priority: 80,
				Duration: time.Hour}},
			Decode: &messages.DecodeRetention{Priority: 10},
		},
	}
	a, err := from.Admit(ctx, request)
	require.NoError(t, err)
	q := admitted(request, &a)
	require.NoError(t, from.compute(from.writer, q, 21))
	_, m := handed(t, from, to, q.id)
	assert.Equal(t, request.Namespace, m.Namespace)
	assert.Equal(t, request.Session, m.Session)
	assert.Equal(t, request.Retention, m.Retention)
	assert.Equal(t, request.Multimodal, m.Multimodal)
	assert.Equal(t, request.Tokens, m.Tokens)
	got := arrived(m)
	to.verify(got)
	require.NoError(t, to.release(got))
	found, err := to.Lookup(ctx, messages.Prefix{Namespace: request.Namespace, Tokens: request.Tokens,
		Multimodal: request.Multimodal})
	require.NoError(t, err)
	assert.Equal(t, 20, found.MatchedTokens, "what has come is stored under the same identity")
	// The other way round the source of the items is a sequence that has come.
	_, back := handed(t, from, to, q.id)
	_, again := handed(t, to, from, back.Sequence)
	assert.Equal(t, request.Multimodal, again.Multimodal)
	require.NoError(t, to.release(arrived(back)))
	require.NoError(t, from.release(arrived(again)))
	require.NoError(t, from.release(q))
	from.verify()
	to.verify()
	from.close()
	to.close()
}

// A rebalance between the batches of a hand-over gives pages other numbers: the bytes are
// still right.
func TestHandoverDuringARebalance(t *testing.T) {
	ctx := context.Background()
	s := setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 16}, {Primary: 16}}}
	from, to := newRig(t, s, actors.WithHandover(actors.HandoverConfig{StagingBytes: 1})), newRig(t, s)
	from.store(run(500, 40))
	q, err := from.start(run(0, 21))
	require.NoError(t, err)
	from.awaitKernels()
	var stream bytes.Buffer
	pages := [][]int{{20, 12}, {10, 22}}
	resize := func() {
		_, err := from.Resize(ctx, pages[0])
		assert.NoError(t, err)
		pages[0], pages[1] = pages[1], pages[0]
	}
	w := &everyWrite{Writer: &stream, call: resize}
	x, err := actors.HandoversOf(from.Engine).Export(ctx, q.id, w)
	require.NoError(t, err)
	require.NoError(t, x.Release(ctx))
	m, err := actors.HandoversOf(to.Engine).Import(ctx, &stream)
	require.NoError(t, err)
	got := arrived(m)
	to.verify(got)
	require.NoError(t, to.release(got))
	require.NoError(t, from.release(q))
	from.close()
	to.close()
}

type everyWrite struct {
	io.Writer
	call func()
}

func (w *everyWrite) Write(b []byte) (int, error) {
	w.call()
	return w.Writer.Write(b)
}
