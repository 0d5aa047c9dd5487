package bench

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// handoverPages is how many pages of 1 MiB are handed over.
const handoverPages = 1000

// loopback is a TCP connection to oneself.
func loopback(tb testing.TB) (a, b net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	defer listener.Close()
	done := make(chan net.Conn, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			done <- c
		}
		close(done)
	}()
	a, err = net.Dial("tcp", listener.Addr().String())
	require.NoError(tb, err)
	b = <-done
	require.NotNil(tb, b)
	return a, b
}

// handoverEngine has room for the sequence, in pages of 1 MiB: 16 tokens of 2048 elements
// of keys and as many values, in 8 layers.
func handoverEngine(tb testing.TB, system *actor.ActorSystem, pages int) *actors.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: int64(pages+1) << 20, Poison: sim.PoisonOff})
	require.NoError(tb, err)
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 16
	e, err := actors.Spawn(system.Root, actors.Config{
		Model: windows.Model{Layers: 8, KVHeads: []int{16}, HeadDim: 128, DType: windows.Float16,
			MaxSeqLen: 16 * (pages + 1)},
		Cache: cache, Pages: []windows.PageCounts{{Primary: pages}}, Device: device,
	})
	require.NoError(tb, err)
	require.EqualValues(tb, 1<<20, e.Pools()[0].PageBytes)
	tb.Cleanup(func() {
		_, err := e.Close(context.Background())
		require.NoError(tb, err)
		require.NoError(tb, device.Close())
	})
	return e
}

// BenchmarkHandover hands a sequence of 1000 pages over, against the same bytes through the
// same connection by io.Copy. Pages are copied from the device and to it, which io.Copy
// does not do.
func BenchmarkHandover(b *testing.B) {
	ctx := context.Background()
	b.Run("Send", func(b *testing.B) {
		system := actors.NewSystem(nil)
		defer system.Shutdown()
		from, to := handoverEngine(b, system, handoverPages), handoverEngine(b, system, handoverPages)
		tokens := make([]messages.Token, 16*handoverPages)
		for i := range tokens {
			tokens[i] = messages.Token(i)
		}
		admitted, err := from.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
		require.NoError(b, err)
		_, err = from.Commit(ctx,
			[]messages.CommitStep{{Sequence: admitted.Sequence, Computed: len(tokens)}})
		require.NoError(b, err)
		b.SetBytes(handoverPages << 20)
		for b.Loop() {
			source, target := loopback(b)
			sent := make(chan error, 1)
			go func() {
				_, err := actors.HandoversOf(from).Send(ctx, admitted.Sequence, source)
				sent <- err
			}()
			in, err := actors.HandoversOf(to).Receive(ctx, target)
			require.NoError(b, err)
			require.NoError(b, <-sent)
			require.Equal(b, handoverPages, in.Pages)
			_, err = to.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence, Discard: true}})
			require.NoError(b, err)
			require.NoError(b, to.Reset(ctx))
			require.NoError(b, source.Close())
			require.NoError(b, target.Close())
		}
		_, err = from.Release(ctx, []messages.ReleaseStep{{Sequence: admitted.Sequence, Discard: true}})
		require.NoError(b, err)
	})
	b.Run("Copy", func(b *testing.B) {
		bytes := make([]byte, handoverPages<<20)
		b.SetBytes(handoverPages << 20)
		for b.Loop() {
			source, target := loopback(b)
			go func() {
				_, _ = io.Copy(source, &repeated{bytes: bytes})
				_ = source.Close()
			}()
			n, err := io.Copy(io.Discard, target)
			require.NoError(b, err)
			require.EqualValues(b, handoverPages<<20, n)
			require.NoError(b, target.Close())
		}
	})
}

// repeated reads bytes once, without a WriteTo that would send them in one call.
type repeated struct {
	bytes []byte
	at    int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.at == len(r.bytes) {
		return 0, io.EOF
	}
	n := copy(b, r.bytes[r.at:])
	r.at += n
	return n, nil
}
