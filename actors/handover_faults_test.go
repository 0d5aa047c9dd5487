package actors_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// unchanged holds an engine against itself, and against having nothing.
func (r *rig) unchanged(t testing.TB) {
	t.Helper()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	require.Zero(t, stats.Sequences)
	for _, p := range stats.Pools {
		require.Zero(t, p.Primary.Used, p.Name)
		require.Zero(t, p.Primary.Cached, p.Name)
	}
	require.NoError(t, r.Check(context.Background()))
}

// streamOf is the stream of a sequence with a partial block, a token that is not computed,
// and retention.
func streamOf(t testing.TB, s setup) []byte {
	from := newRig(t, s)
	q, err := from.start(run(0, 13))
	require.NoError(t, err)
	results, err := from.Append(context.Background(),
		[]messages.AppendStep{{Sequence: q.id, Tokens: run(50, 2)}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	stream := exported(t, from, q.id)
	require.NoError(t, from.release(q))
	from.close()
	return stream
}

// A stream that ends anywhere but at its end leaves nothing.
func TestImportOfEveryTruncation(t *testing.T) {
	stream := streamOf(t, limited(8))
	to := newRig(t, limited(8))
	for n := 0; n < len(stream); n += 1 + n/97 {
		_, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream[:n]))
		require.ErrorIs(t, err, messages.ErrBadStream, "%d of %d bytes", n, len(stream))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	to.unchanged(t)
	to.close()
}

// A flipped bit anywhere is found, and leaves nothing.
func TestImportOfFlippedBits(t *testing.T) {
	stream := streamOf(t, limited(8))
	to := newRig(t, limited(8))
	for at := 0; at < 8*len(stream); at += 1 + at/201 {
		damaged := bytes.Clone(stream)
		damaged[at/8] ^= 1 << (at % 8)
		_, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(damaged))
		require.Error(t, err, "bit %d", at)
	}
	to.unchanged(t)
	to.close()
}

// What cannot be handed over is refused by name, on either side.
func TestRefusedHandovers(t *testing.T) {
	ctx := context.Background()
	stream := streamOf(t, limited(8))
	other := limited(8)
	for _, c := range []struct {
		change  func(*setup)
		options []actors.Option
		want    string
	}{
		{func(s *setup) { s.windows = []int{full, 8, 12} }, nil,
			"pool w12h1: window is 12 here, 16 in the stream"},
		{func(s *setup) { s.windows, s.pages = []int{full, 8}, s.pages[:2] }, nil,
			"2 pools [w8h1 wfullh1] here, 3 [w8h1 w16h1 wfullh1] in the stream"},
		{func(s *setup) { s.model = func(m *windows.Model) { m.HeadDim = 8 } }, nil,
			"pool w8h1: head_dim is 8 here, 4 in the stream"},
		{func(s *setup) { s.change = nil }, nil, "pool w8h1: sink is 0 here, 4 in the stream"},
		{func(*setup) {}, []actors.Option{actors.WithHandover(actors.HandoverConfig{Model: "m"})},
			"model is m here"},
	} {
		s := other
		c.change(&s)
		to := newRig(t, s, c.options...)
		_, err := actors.HandoversOf(to.Engine).Import(ctx, bytes.NewReader(stream))
		assert.ErrorIs(t, err, messages.ErrNotSupported)
		assert.ErrorContains(t, err, c.want)
		to.unchanged(t)
		to.close()
	}
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
	h := actors.HandoversOf(r.Engine)
	_, err := h.Export(ctx, 1, io.Discard)
	assert.ErrorIs(t, err, messages.ErrUnknownSequence)
	a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 9)})
	require.NoError(t, err)
	_, err = h.Export(ctx, a.Sequence, io.Discard)
	assert.ErrorContains(t, err, "0 of 9 tokens of the prompt are computed")
	q := admitted(messages.AdmitRequest{Tokens: run(0, 9)}, &a)
	require.NoError(t, r.compute(r.writer, q, 9))
	full := exported(t, r, q.id)
	_, err = h.Import(ctx, bytes.NewReader(full))
	require.NoError(t, err, "two blocks are there, one page is free")
	_, err = h.Import(ctx, bytes.NewReader(full))
	assert.ErrorIs(t, err, messages.ErrOutOfPages)
	assert.ErrorContains(t, err, "pool wfullh1 needs 1 pages, 0 available")
	_, err = r.Close(ctx)
	require.NoError(t, err)
	r.ended()
}

// A refusal reaches the source also where the connection holds no byte that no one reads, and
// in the middle of the pages neither side waits for the other once the receiver has closed.
func TestRefusalsOverAPipe(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*setup)
		damage func(stream []byte) int // the byte that is damaged; nil: none
		want   [2]string               // of the source, of the receiver
	}{
		{"another geometry", func(s *setup) { s.windows = []int{full, 8, 12} }, nil,
			[2]string{"the receiver refused", "window is 12 here"}},
		{"shorter sequences", func(s *setup) { s.model = func(m *windows.Model) { m.MaxSeqLen = 24 } },
			nil, [2]string{"the receiver refused", "max_seq_len is 24 here"}},
		{"too few pages",
			func(s *setup) { s.pages = slices.Repeat([]windows.PageCounts{{Primary: 2}}, 3) }, nil,
			[2]string{"the receiver refused", "needs"}},
		{"a damaged page", func(*setup) {}, func(stream []byte) int { return len(stream) - 200 },
			[2]string{"closed pipe", "checksum"}},
		{"a damaged length", func(*setup) {}, func([]byte) int { return lengthAt },
			[2]string{"closed pipe", "check of the header"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there := limited(24)
				c.change(&there)
				from, to := newRig(t, limited(24)), newRig(t, there)
				q, err := from.start(run(0, 33))
				require.NoError(t, err)
				a, b := net.Pipe()
				source := &wire{Conn: a}
				if c.damage != nil {
					source.left = c.damage(exported(t, from, q.id))
					source.do = source.flip(1)
				}
				sent := make(chan error)
				go func() {
					_, err := actors.HandoversOf(from.Engine).Send(context.Background(), q.id, source)
					sent <- err
				}()
				_, err = actors.HandoversOf(to.Engine).Receive(context.Background(), b)
				require.NoError(t, b.Close())
				assert.ErrorContains(t, <-sent, c.want[0])
				assert.ErrorContains(t, err, c.want[1])
				require.NoError(t, a.Close())
				to.unchanged(t)
				require.NoError(t, from.release(q))
				from.close()
				to.close()
			})
		})
	}
}

// The pages stay while they are held, also when the sequence is gone and others need
// memory, and go when the hold ends.
func TestExportedPagesAreHeld(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
	ctx := context.Background()
	q, err := r.start(run(0, 12))
	require.NoError(t, err)
	x, err := actors.HandoversOf(r.Engine).Export(ctx, q.id, io.Discard)
	require.NoError(t, err)
	require.NoError(t, r.release(q))
	_, err = r.Admit(ctx, messages.AdmitRequest{Tokens: run(100, 8)})
	assert.ErrorIs(t, err, messages.ErrOutOfPages)
	require.NoError(t, x.Release(ctx))
	r.store(run(100, 8))
	r.verify()
	r.close()
}

// A context that ends interrupts a connection that stands still, on both sides.
func TestCancelledHandovers(t *testing.T) {
	from, to := newRig(t, limited(24)), newRig(t, limited(24))
	q, err := from.start(run(0, 33))
	require.NoError(t, err)
	a, b := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() {
		_, err := actors.HandoversOf(from.Engine).Send(ctx, q.id, a) // no one reads
		assert.ErrorIs(t, err, context.Canceled)
	})
	c, d := net.Pipe()
	ends.Go(func() {
		_, err := actors.HandoversOf(to.Engine).Receive(ctx, c) // no one writes
		assert.ErrorIs(t, err, context.Canceled)
	})
	time.Sleep(time.Millisecond)
	cancel()
	ends.Wait()
	for _, end := range []net.Conn{a, b, c, d} {
		require.NoError(t, end.Close())
	}
	to.unchanged(t)
	require.NoError(t, from.release(q))
	from.verify()
	from.close()
	to.close()
}

// Close interrupts hand-overs and leaves nothing of them.
func TestCloseEndsHandovers(t *testing.T) {
	to := newRig(t, limited(24))
	stream := streamOf(t, limited(24))
	a, b := net.Pipe()
	done := make(chan error)
	go func() {
		_, err := actors.HandoversOf(to.Engine).Import(context.Background(), b)
		done <- err
	}()
	_, err := a.Write(stream[:len(stream)-200])
	require.NoError(t, err)
	leaked, err := to.Close(context.Background())
	require.NoError(t, err)
	assert.Zero(t, leaked)
	assert.ErrorIs(t, <-done, messages.ErrClosed)
	_, err = actors.HandoversOf(to.Engine).Import(context.Background(), b)
	assert.ErrorIs(t, err, messages.ErrClosed)
	require.NoError(t, errors.Join(a.Close(), b.Close()))
	to.ended()
}

// An actor that fails within a hand-over costs it nothing, or the hand-over as a whole.
func TestHandoverOverFailures(t *testing.T) {
	for _, actor := range []string{"coordinator", "tree", "offloader", "pool:w8h1"} {
		for at := range 12 {
			from, to := newRig(t, limited(24), actors.WithRestartLimit(100, time.Hour)),
				newRig(t, limited(24), actors.WithRestartLimit(100, time.Hour))
			to.store(run(0, 8))
			q, err := from.start(run(0, 21))
			require.NoError(t, err)
			// The failure comes with a read or a write of the stream, so that it is in another
			// stage each time.
			var stream bytes.Buffer
			_, err = actors.HandoversOf(from.Engine).Export(context.Background(), q.id,
				&failing{Writer: &stream, after: at, fail: func() { _ = from.points.Arm(actor) }})
			if err != nil {
				stream.Reset()
				x, err := actors.HandoversOf(from.Engine).Export(context.Background(), q.id, &stream)
				require.NoError(t, err)
				require.NoError(t, x.Release(context.Background()))
			}
			m, err := actors.HandoversOf(to.Engine).Import(context.Background(),
				&failing{Reader: &stream, after: 3 * at, fail: func() { _ = to.points.Arm(actor) }})
			if err == nil {
				got := arrived(m)
				to.verify(got)
				require.NoError(t, to.release(got))
			}
			to.verify()
			from.awaitKernels()
			_, err = from.Close(context.Background())
			require.NoError(t, err)
			from.ended()
			to.close()
		}
	}
}

// failing calls a function at one of its reads or writes.
type failing struct {
	io.Reader
	io.Writer
	after int
	fail  func()
}

func (f *failing) count() {
	if f.after--; f.after == 0 {
		f.fail()
	}
}

func (f *failing) Read(b []byte) (int, error) {
	f.count()
	return f.Reader.Read(b)
}

func (f *failing) Write(b []byte) (int, error) {
	f.count()
	return f.Writer.Write(b)
}

// Many hosts hand sequences over in both directions, between engines with too little
// memory. Kernels verify what has come.
func TestManyHandovers(t *testing.T) {
	rigs := [2]*rig{newRig(t, limited(40)), newRig(t, limited(32))}
	var hosts sync.WaitGroup
	var arrivals atomic.Int64
	for i := range 6 {
		w := &walker{rig: rigs[i%2], writer: rigs[i%2].newWriter("host"),
			rand: rand.New(rand.NewPCG(uint64(i), 7))}
		target := rigs[1-i%2]
		other := target.newWriter("receiver")
		hosts.Go(func() {
			for range 30 {
				if !assert.NoError(t, handOne(w, target, other, &arrivals)) {
					return
				}
			}
			assert.Empty(t, w.writer.Problems())
			assert.Empty(t, other.Problems())
		})
	}
	hosts.Wait()
	assert.Positive(t, arrivals.Load())
	t.Log(arrivals.Load(), "sequences have arrived")
	for _, r := range rigs {
		r.verify()
		stats, err := r.Stats(context.Background())
		require.NoError(t, err)
		assert.Zero(t, stats.Sequences)
		r.close()
	}
}

// handOne computes a prompt, hands it over and continues on both sides. Too few pages are
// part of life.
func handOne(w *walker, to *rig, receiver *host.Writer, arrivals *atomic.Int64) error {
	ctx := context.Background()
	running, err := w.arrive()
	for _, q := range running {
		if err == nil {
			err = w.grow(q)
		}
		if err == nil {
			var got *actors.Imported
			if got, err = carry(w.rig, to, q.id, w.one(2)); err == nil {
				arrivals.Add(1)
				s := arrived(got)
				err = to.decode(receiver, s, 7)
				if errors.Is(err, messages.ErrOutOfPages) {
					err = nil
				}
				err = errors.Join(err, to.release(s))
			}
			if errors.Is(err, messages.ErrOutOfPages) || errors.Is(err, messages.ErrBadStream) {
				err = nil // the source is told of the receiver's pages by ErrBadStream
			}
		}
		results, failed := w.Release(ctx, []messages.ReleaseStep{{Sequence: q.id, After: q.last}})
		if failed == nil {
			failed = results[0].Err
		}
		err = errors.Join(err, failed)
	}
	return err
}

// carry hands a sequence over, in memory or over a connection.
func carry(from, to *rig, id messages.SequenceID, both bool) (*actors.Imported, error) {
	ctx := context.Background()
	if !both {
		var stream bytes.Buffer
		x, err := actors.HandoversOf(from.Engine).Export(ctx, id, &stream)
		if err != nil {
			return nil, err
		}
		m, err := actors.HandoversOf(to.Engine).Import(ctx, &stream)
		return m, errors.Join(err, x.Release(ctx))
	}
	a, b := net.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := actors.HandoversOf(from.Engine).Send(ctx, id, a)
		sent <- errors.Join(err, a.Close())
	}()
	m, err := actors.HandoversOf(to.Engine).Receive(ctx, b)
	_ = b.Close()
	failed := <-sent
	if err == nil {
		err = failed
	}
	return m, err
}
