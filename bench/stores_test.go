package bench

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/valkey"
	"github.com/kvactor/kvactor/windows"
)

// seenStore keeps what is put, to read and write it once more without an engine.
type seenStore struct {
	stores.Store
	mu      sync.Mutex
	objects []stores.Object
}

func (s *seenStore) Put(ctx context.Context, objects []stores.Object) error {
	s.mu.Lock()
	s.objects = append(s.objects, objects...)
	s.mu.Unlock()
	return s.Store.Put(ctx, objects)
}

// callObjects is how many objects of a mebibyte one call has, with an engine and without.
const callObjects = 64

func inBatches[T any](list []T, do func([]T)) {
	for len(list) > 0 {
		n := min(callObjects, len(list))
		do(list[:n])
		list = list[n:]
	}
}

// openStores are the stores to be measured: one in memory, and a real server if one is
// installed.
func openStores(b *testing.B) map[string]stores.Store {
	all := map[string]stores.Store{"memory": &stores.Memory{}}
	if server, err := exec.LookPath("redis-server"); err == nil {
		all["redis"] = startRedis(b, server)
	}
	return all
}

func startRedis(b *testing.B, server string) stores.Store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	address := l.Addr().String()
	require.NoError(b, l.Close())
	_, port, _ := strings.Cut(address, ":")
	run := exec.Command(server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", os.TempDir())
	require.NoError(b, run.Start())
	b.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	var store *valkey.Store
	require.Eventually(b, func() bool {
		store, err = valkey.Open("redis://" + address)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	b.Cleanup(func() { _ = store.Close() })
	return store
}

// keeper is an engine whose pages have a mebibyte each.
type keeper struct {
	*actors.Engine
	store actors.Store
}

func newKeeper(b *testing.B, pages windows.Counts, options ...actors.Option) *keeper {
	device, err := sim.New(sim.Config{MemoryBytes: int64(pages.Primary) << 20, Poison: sim.PoisonOff})
	require.NoError(b, err)
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.OffloadAhead = tokensPerBlock, false
	model := windows.Model{Layers: 1, KVHeads: []int{64}, HeadDim: 512, DType: windows.Int8, MaxSeqLen: 1 << 20}
	e, err := actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Pages: []windows.Counts{pages}, Device: device}, options...)
	require.NoError(b, err)
	b.Cleanup(func() {
		_, err := e.Close(context.Background())
		require.NoError(b, err)
		require.NoError(b, device.Close())
		system.Shutdown()
	})
	return &keeper{e, actors.StoreOf(e)}
}

// keep computes a prompt, in parts that the bound of the bytes on their way has room for.
func (k *keeper) keep(b *testing.B, tokens []messages.Token) {
	ctx := context.Background()
	in, err := k.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
	require.NoError(b, err)
	for computed := 0; computed < len(tokens); {
		computed = min(len(tokens), computed+callObjects*tokensPerBlock)
		results, err := k.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: computed}})
		require.NoError(b, err)
		require.NoError(b, results[0].Err)
		_, err = k.store.Flush(ctx, 0)
		require.NoError(b, err)
	}
	_, err = k.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence}})
	require.NoError(b, err)
}

// pagesKept is how many pages of a mebibyte are saved and fetched.
func pagesKept() int {
	if quick() {
		return 20
	}
	return 1000
}

// BenchmarkFetch brings pages of a mebibyte from a store to host memory; the floor reads the
// same objects with the same client and does nothing with them.
func BenchmarkFetch(b *testing.B) {
	for name, store := range openStores(b) {
		b.Run(name, func(b *testing.B) {
			n := pagesKept()
			seen := &seenStore{Store: store}
			tokens := random(dice(9), n*tokensPerBlock)
			writer := newKeeper(b, windows.Counts{Primary: n}, actors.WithStore(actors.StoreConfig{Store: seen, Model: b.Name(), Save: actors.SaveOnCommit}))
			writer.keep(b, tokens)
			require.Len(b, seen.objects, n)
			var keys []stores.Key
			for i := range seen.objects {
				keys = append(keys, seen.objects[i].Key)
			}
			seen.objects = nil
			reader := newKeeper(b, windows.Counts{Primary: 2, Secondary: n}, actors.WithStore(actors.StoreConfig{Store: store, Model: b.Name(), FetchBytes: 2 << 30}))
			ctx := context.Background()
			fetch := func() time.Duration {
				start := time.Now()
				got, err := reader.store.Fetch(ctx, messages.Prefix{Tokens: tokens})
				took := time.Since(start)
				require.NoError(b, err)
				require.Equal(b, n, got.Blocks)
				require.NoError(b, reader.Reset(ctx))
				return took
			}
			versus(b, fetch, timed(func() {
				inBatches(keys, func(keys []stores.Key) {
					require.NoError(b, store.Get(ctx, keys, make([][]byte, len(keys))))
				})
			}))
		})
	}
}

// BenchmarkSave computes a prompt whose pages go to a store; the floor writes the same
// objects with the same client.
func BenchmarkSave(b *testing.B) {
	for name, store := range openStores(b) {
		b.Run(name, func(b *testing.B) {
			n := min(pagesKept(), 4*callObjects)
			seen := &seenStore{Store: store}
			k := newKeeper(b, windows.Counts{Primary: n}, actors.WithStore(actors.StoreConfig{Store: seen, Model: b.Name(), Save: actors.SaveOnCommit}))
			tokens := random(dice(10), n*tokensPerBlock)
			ctx := context.Background()
			next := 0
			save := func() time.Duration {
				next++
				tokens[0] = messages.Token(vocabulary + next) // nothing of it is stored
				seen.objects = nil
				start := time.Now()
				k.keep(b, tokens)
				took := time.Since(start)
				require.Len(b, seen.objects, n)
				return took
			}
			c := versus(b, save, func() time.Duration {
				objects := seen.objects
				start := time.Now()
				inBatches(objects, func(objects []stores.Object) { require.NoError(b, store.Put(ctx, objects)) })
				took := time.Since(start)
				var keys []stores.Key
				for i := range objects {
					keys = append(keys, objects[i].Key)
				}
				require.NoError(b, store.Delete(ctx, keys))
				return took
			})
			b.ReportMetric(float64(n<<20)/c.engine.quantile(0.5), "GB/s")
		})
	}
}

// hungStore answers nothing before its time is over.
type hungStore struct{ stores.Memory }

func (*hungStore) Has(ctx context.Context, _ []stores.Key, _ []bool) error {
	<-ctx.Done()
	return ctx.Err()
}

// BenchmarkWithStore leads lives on an engine with a store that works, or one that hangs; the
// floor is an engine without. Prompts are reused, so that their pages are to be saved.
func BenchmarkWithStore(b *testing.B) {
	for name, store := range map[string]stores.Store{"on": &stores.Memory{}, "hanging": &hungStore{}} {
		b.Run(name, func(b *testing.B) {
			life := func(options ...actors.Option) side {
				k := newKeeper(b, windows.Counts{Primary: 96, Secondary: 16}, options...)
				text, turn := random(dice(11), 32*tokensPerBlock+1), 0
				return batched(8, func() {
					turn++
					ctx := context.Background()
					tokens := text
					tokens[0] = messages.Token(vocabulary + turn/16)
					in, err := k.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
					require.NoError(b, err)
					_, err = k.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: len(tokens)}})
					require.NoError(b, err)
					_, err = k.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence}})
					require.NoError(b, err)
				})
			}
			versus(b, life(actors.WithStore(actors.StoreConfig{Store: store, Model: b.Name()})), life())
		})
	}
}
