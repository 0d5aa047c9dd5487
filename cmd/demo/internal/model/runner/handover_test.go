package runner_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// handoverFixtures are all models. With -short there is one of each kind: full attention,
// windows, latent attention, an encoder, states.
func handoverFixtures() []string {
	if testing.Short() {
		return []string{"llama_gqa", "gemma3_hybrid", "deepseek_v3_mla", "t5_cross", "bamba_mamba2"}
	}
	return fixtures
}

// handoverTypes are the types of the cache. With -short one model has pages of 8 bits: they
// are read and written alike in all.
func handoverTypes(name string) []windows.DType {
	switch {
	case !testing.Short():
		return []windows.DType{windows.Float32, windows.Int8, windows.FP8}
	case name == "llama_gqa":
		return []windows.DType{windows.Float32, windows.Int8}
	}
	return []windows.DType{windows.Float32}
}

// source is an engine from which sequences go, and target one to which they come: with
// another device, other pages, and other numbers of them.
func source(t testing.TB, f *fixtureModel, dtype windows.DType) *runner.Runner {
	t.Helper()
	return open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, DType: dtype, Seed: 1})
}

func target(t testing.TB, f *fixtureModel, dtype windows.DType) *runner.Runner {
	t.Helper()
	return open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4, Pages: 60, HostPages: 20,
		DType: dtype, Seed: 2})
}

// prefilled computes a prompt and generates some tokens. The last one is not computed: that is
// the first thing to do at the other engine.
func prefilled(t testing.TB, r *runner.Runner, q runner.Request) *history {
	t.Helper()
	h := begin(t, r, q)
	h.generate(t, r, 3)
	require.NoError(t, r.Sample(t.Context(), h.Sequence))
	return h
}

// resume computes what was sampled and generates to the end of the answer.
func (h *history) resume(t testing.TB, r *runner.Runner) {
	t.Helper()
	errs, err := r.Compute(t.Context(), h.Sequence)
	require.NoError(t, errors.Join(append(errs, err)...))
	h.rows = append(h.rows, h.Logits...)
	h.generate(t, r, answerLen)
}

// arrived is the history at the second engine, which begins with what is computed there.
func (h *history) arrived(s *runner.Sequence) *history {
	s.AllLogits = true
	return &history{Sequence: s, ask: h.ask, from: s.Computed()}
}

// stream is what Export writes.
func (h *history) stream(t testing.TB, r *runner.Runner) []byte {
	t.Helper()
	var w bytes.Buffer
	x, err := r.Export(t.Context(), h.Sequence, &w)
	require.NoError(t, err)
	require.NoError(t, x.Release(t.Context()))
	return w.Bytes()
}

// send hands a sequence over by a connection, so that only missing pages go.
func (h *history) send(t testing.TB, from, to *runner.Runner) (*history, *kvactor.Imported) {
	t.Helper()
	a, b := net.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Send(t.Context(), h.Sequence, a)
		sent <- err
	}()
	s, in, err := to.Receive(t.Context(), b)
	require.NoError(t, errors.Join(err, b.Close(), <-sent, a.Close()))
	return h.arrived(s), in
}

// A sequence that is handed over has the bits, and the tokens, of one that is not, whether
// all its pages are sent or the engine has some of them, in floats and in 8 bits. The
// source can go on beside it, and what has come is stored for other prompts.
func TestHandover(t *testing.T) {
	for _, name := range handoverFixtures() {
		for _, dtype := range handoverTypes(name) {
			t.Run(name+" "+string(dtype), func(t *testing.T) {
				f := fixture(t, name)
				a := newReference(t, f, runner.Config{DType: dtype})
				for _, c := range f.Cases[2:4] {
					ask := runner.Request{Tokens: c.Tokens, Encoder: c.Encoder}
					from := source(t, f, dtype)
					h := prefilled(t, from, ask)
					exported, to := h.stream(t, from), target(t, f, dtype)
					s, in, err := to.Import(t.Context(), bytes.NewReader(exported))
					require.NoError(t, err)
					assert.Zero(t, in.SharedPages)
					first := h.arrived(s)

					other := target(t, f, dtype)
					// whole blocks
					prefix := runner.Request{Tokens: c.Tokens[:len(c.Tokens)/4*4], Encoder: c.Encoder}
					begin(t, other, prefix).end(t, other)
					second, less := h.send(t, from, other)
					assert.Positive(t, less.SharedPages)
					assert.Equal(t, in.Pages, less.Pages+less.SharedPages, "only the missing pages move")

					h.resume(t, from)
					h.check(t, a, "at the source")
					h.end(t, from)
					first.finish(t, to, a, h.Tokens)
					second.finish(t, other, a, h.Tokens)
					if dtype == windows.Float32 {
						assert.Equal(t, c.Greedy[:len(h.Tokens)-h.Prompt], h.Tokens[h.Prompt:])
					}
				}
			})
		}
	}
}

// finish decodes what has come and compares it.
func (h *history) finish(t *testing.T, r *runner.Runner, a *reference, tokens []messages.Token) {
	t.Helper()
	h.resume(t, r)
	assert.Equal(t, tokens, h.Tokens)
	h.check(t, a, "handed over")
	h.end(t, r)
	again := begin(t, r, runner.Request{Tokens: append(slices.Clone(tokens), 1),
		Encoder: h.ask.Encoder})
	assert.Equal(t, len(tokens), again.Reused, "what has come is stored")
	again.generate(t, r, 2)
	again.check(t, a, "behind what has come")
	again.end(t, r)
}

// The comparison can fail: one wrong bit of a page, or a page without its bytes, shows in
// the logits if the checksums of the stream are made right. If they are not, and if a page is
// left out, the stream is refused.
func TestAWrongPageOfAHandoverShows(t *testing.T) {
	for _, name := range handoverFixtures() {
		for _, dtype := range handoverTypes(name) {
			t.Run(name+" "+string(dtype), func(t *testing.T) {
				f := fixture(t, name)
				a, from := newReference(t, f, runner.Config{DType: dtype}), source(t, f, dtype)
				h := prefilled(t, from, runner.Request{Tokens: f.Cases[2].Tokens, Encoder: f.Cases[2].Encoder})
				good := h.stream(t, from)
				pages := pagesOf(t, good, from.Engine.Actors().Shapes())
				assert.False(t, h.shows(t, a, target(t, f, dtype), rewrite(good, pages, -1, nil)),
					"nothing is changed")
				last := lastPages(pages)
				require.Len(t, last, len(from.Engine.DevicePools()), "each pool has pages in the stream")
				for pool, i := range last {
					bad := rewrite(good, pages, i,
						func(page []byte) { page[from.ByteInUse(pool, len(page))] ^= 0x40 })
					assert.True(t, h.shows(t, a, target(t, f, dtype), bad), "pool %d, one wrong bit", pool)
					bad = rewrite(good, pages, i, func(page []byte) { clear(page) })
					assert.True(t, h.shows(t, a, target(t, f, dtype), bad), "pool %d, a page of zeros", pool)
					refuses(t, target(t, f, dtype), good, pages[i])
				}
				h.end(t, from)
			})
		}
	}
}

// shows tells whether a stream gives other logits than the sequence has alone.
func (h *history) shows(t *testing.T, a *reference, r *runner.Runner, stream []byte) bool {
	t.Helper()
	s, _, err := r.Import(t.Context(), bytes.NewReader(stream))
	require.NoError(t, err)
	errs, err := r.Compute(t.Context(), s)
	require.NoError(t, errors.Join(append(errs, err)...))
	want := a.logits(t, runner.Request{Tokens: h.Tokens, Encoder: h.ask.Encoder})
	_, other := differs(want[len(want)-1], s.Logits[0])
	require.NoError(t, r.Release(t.Context(), s))
	return other
}

// refuses says that a stream with a damaged page, or without it, is refused.
func refuses(t *testing.T, r *runner.Runner, good []byte, page streamPage) {
	t.Helper()
	damaged := slices.Clone(good)
	damaged[page.at] ^= 1
	without := slices.Delete(slices.Clone(good), page.at, page.at+page.bytes+sumBytes)
	for _, stream := range [][]byte{damaged, without} {
		_, _, err := r.Import(t.Context(), bytes.NewReader(stream))
		require.ErrorIs(t, err, messages.ErrBadStream)
	}
}

// The format of a stream, as package handover of the actors has it: a header and an opening of
// JSON, then pages, each with a checksum behind it.
const (
	headerBytes = 32
	lengthAt    = 8  // of the opening, in the header
	openingSum  = 16 // its checksum
	sumBytes    = 8
)

// streamPage is a page of a pool, by its place in the stream.
type streamPage struct{ pool, at, bytes int }

// pagesOf lists the pages of a stream: those of blocks, block by block, then those of states, then
// the input of an encoder.
func pagesOf(t *testing.T, stream []byte, pools []windows.Pool) (list []streamPage) {
	at := headerBytes + int(binary.LittleEndian.Uint64(stream[lengthAt:]))
	var opening struct{ Sequence struct{ Computed int } }
	require.NoError(t, json.Unmarshal(stream[headerBytes:at], &opening))
	add := func(pool int) {
		p := streamPage{pool, at, int(pools[pool].PageBytes())}
		list, at = append(list, p), at+p.bytes+sumBytes
	}
	computed := opening.Sequence.Computed
	for b := range (computed + pools[0].TokensPerBlock - 1) / pools[0].TokensPerBlock {
		for i, p := range pools {
			if p.Kind == windows.KindAttention &&
				(p.Full() || b < p.SinkBlocks() || b >= p.FirstKept(computed)) {
				add(i)
			}
		}
	}
	for i, p := range pools {
		if p.Kind == windows.KindState {
			add(i)
		}
	}
	for at < len(stream) {
		add(len(pools) - 1)
	}
	return list
}

// lastPages are the indices of the last pages of each pool.
func lastPages(pages []streamPage) map[int]int {
	last := map[int]int{}
	for i, p := range pages {
		last[p.pool] = i
	}
	return last
}

// rewrite changes a page, and makes the checksums right.
func rewrite(stream []byte, pages []streamPage, changed int, change func(page []byte)) []byte {
	stream = slices.Clone(stream)
	sum := binary.LittleEndian.Uint64(stream[openingSum:])
	for i, p := range pages {
		body := stream[p.at : p.at+p.bytes]
		if i == changed {
			change(body)
		}
		for piece := range slices.Chunk(body, 128<<10) {
			sum = xxh3.HashSeed(piece, sum)
		}
		binary.LittleEndian.PutUint64(stream[p.at+p.bytes:], sum)
	}
	return stream
}

// What a stream cannot carry is refused before anything is sent, and leaves the sequence as
// it is.
func TestRefusedHandovers(t *testing.T) {
	for _, name := range handoverFixtures() {
		f := fixture(t, name)
		a, r := newReference(t, f, runner.Config{}), source(t, f, windows.Float32)
		ask := runner.Request{Tokens: f.Cases[2].Tokens, Encoder: f.Cases[2].Encoder}
		if f.beams() {
			beams := ask
			beams.Beams = 2
			s, err := r.Admit(t.Context(), beams)
			require.NoError(t, err)
			require.NoError(t, r.Prefill(t.Context(), s))
			require.NoError(t, r.AppendBeams(t.Context(), s, []messages.BeamStep{{Token: 1}, {Token: 2}}))
			_, err = r.Send(t.Context(), s, &bytes.Buffer{})
			require.ErrorIs(t, err, messages.ErrNotSupported, "%s: beams", name)
			require.NoError(t, r.Release(t.Context(), s))
		}
		// A step that is not committed has moved a state on, and no other page.
		h := prefilled(t, r, ask)
		require.NoError(t, r.ComputeOnly(t.Context(), h.Sequence))
		h.rows = append(h.rows, h.Logits...)
		if f.Recurrent() {
			_, err := r.Send(t.Context(), h.Sequence, &bytes.Buffer{})
			require.ErrorIs(t, err, messages.ErrNotSupported, "%s: a state that is ahead", name)
		}
		errs, err := r.Commit(t.Context(), []*runner.Sequence{h.Sequence}, []int{len(h.Tokens)})
		require.NoError(t, errors.Join(append(errs, err)...))
		h.generate(t, r, 2)
		h.check(t, a, "after a refused hand-over")
		h.end(t, r)
	}
}
