package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
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

// seenStore notes the keys of what is put, and the length of the bodies.
type seenStore struct {
	stores.Store
	mu     sync.Mutex
	keys   []stores.Key
	length int
}

func (s *seenStore) Put(ctx context.Context, objects []stores.Object) error {
	s.mu.Lock()
	for i := range objects {
		s.keys = append(s.keys, objects[i].Key)
		s.length = len(objects[i].Body)
	}
	s.mu.Unlock()
	return s.Store.Put(ctx, objects)
}

// objects are as many and as long as those that were put, to be written without an engine.
func (s *seenStore) objects() []stores.Object {
	all := make([]stores.Object, len(s.keys))
	body := bytes.Repeat([]byte{1}, s.length)
	for i := range all {
		all[i] = stores.Object{Key: s.keys[i], Body: bytes.Clone(body)}
	}
	return all
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
	run := exec.Command(server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
		"no", "--dir", os.TempDir())
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

// keeper is an engine whose pages have a mebibyte each, unless a benchmark says otherwise.
type keeper struct {
	*actors.Engine
	store actors.Store
}

func newKeeper(b *testing.B, pages windows.PageCounts, options ...actors.Option) *keeper {
	return newKeeperOf(b, 1<<20, pages, options...)
}

func newKeeperOf(
	b *testing.B, pageBytes int, pages windows.PageCounts, options ...actors.Option,
) *keeper {
	device, err := sim.New(sim.Config{MemoryBytes: int64(pages.Primary) * int64(pageBytes),
		Poison: sim.PoisonOff})
	require.NoError(b, err)
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.OffloadAhead = tokensPerBlock, false
	model := windows.Model{Layers: 1, KVHeads: []int{64},
		HeadDim: pageBytes / (2 * 64 * tokensPerBlock), DType: windows.Int8, MaxSeqLen: 1 << 20}
	e, err := actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache,
		Pages: []windows.PageCounts{pages}, Device: device}, options...)
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
			writer := newKeeper(b, windows.PageCounts{Primary: n},
				actors.WithStore(actors.StoreConfig{Store: seen, Model: b.Name(), Save: actors.SaveOnCommit}))
			writer.keep(b, tokens)
			require.Len(b, seen.keys, n)
			reader := newKeeper(b, windows.PageCounts{Primary: 2, Secondary: n},
				actors.WithStore(actors.StoreConfig{Store: store, Model: b.Name(), FetchBytes: 2 << 30}))
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
				inBatches(seen.keys, func(keys []stores.Key) {
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
			k := newKeeper(b, windows.PageCounts{Primary: n},
				actors.WithStore(actors.StoreConfig{Store: seen, Model: b.Name(), Save: actors.SaveOnCommit}))
			tokens := random(dice(10), n*tokensPerBlock)
			ctx := context.Background()
			next := 0
			save := func() time.Duration {
				next++
				tokens[0] = messages.Token(vocabulary + next) // nothing of it is stored
				require.NoError(b, store.Delete(ctx, seen.keys))
				seen.keys = nil
				start := time.Now()
				k.keep(b, tokens)
				took := time.Since(start)
				require.Len(b, seen.keys, n)
				return took
			}
			var objects []stores.Object
			var keys []stores.Key // of the objects
			c := versus(b, save, func() time.Duration {
				if objects == nil {
					objects, keys = seen.objects(), seen.keys
				}
				require.NoError(b, store.Delete(ctx, keys))
				start := time.Now()
				inBatches(objects,
					func(objects []stores.Object) { require.NoError(b, store.Put(ctx, objects)) })
				return time.Since(start)
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

// copyStore takes every body by one copy, as a client does that writes to a socket, and has
// nothing. stores.Memory would take new memory from the system for each.
type copyStore struct {
	stores.Memory
	mu     sync.Mutex
	buffer []byte
}

func (s *copyStore) Put(_ context.Context, objects []stores.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range objects {
		s.buffer = append(s.buffer[:0], objects[i].Body...)
	}
	return nil
}

// failingStore answers each call with an error, so that the breaker stays open.
type failingStore struct{ stores.Memory }

func (*failingStore) Has(context.Context, []stores.Key, []bool) error {
	return errors.New("failing store")
}

// visitsOfAText is how often BenchmarkWithStore visits a text before it goes on to the next:
// one visit computes it, the second has its pages saved, the others reuse it.
const visitsOfAText = 16

// visitTexts leads all visits of one text of 33 blocks on an engine, each of which waits for a
// model's step between its requests.
func visitTexts(b *testing.B, step time.Duration, pageBytes int, options ...actors.Option) side {
	k := newKeeperOf(b, pageBytes, windows.PageCounts{Primary: 96, Secondary: 16}, options...)
	tokens, turn := random(dice(11), 32*tokensPerBlock+1), 0
	ctx := context.Background()
	return batched(visitsOfAText, func() {
		tokens[0] = messages.Token(vocabulary + turn/visitsOfAText)
		turn++
		in, err := k.Admit(ctx, messages.AdmitRequest{Tokens: tokens})
		require.NoError(b, err)
		time.Sleep(step)
		_, err = k.Commit(ctx, []messages.CommitStep{{Sequence: in.Sequence, Computed: len(tokens)}})
		require.NoError(b, err)
		_, err = k.Release(ctx, []messages.ReleaseStep{{Sequence: in.Sequence}})
		require.NoError(b, err)
	})
}

// onThread adds what each turn of a side has cost its thread.
func onThread(s side, used *samples) side {
	return func() time.Duration {
		before := threadTime()
		took := s()
		used.add(threadTime() - before)
		return took
	}
}

// BenchmarkWithStore visits texts on an engine with a store that works, one that hangs or one
// that fails; the floor is an engine without. Texts are reused, so that their pages are to be
// saved. Without a step the host asks for a hundred gigabytes a second to be saved, and a
// store that works is busy all the time. With a step, as a small model needs it, pages are
// smaller: the simulated device makes its copies with the processor.
//
// thread-x/floor compares the processor time of the host's thread, on which the actors run,
// and has nothing of what the store's tasks do on other threads.
func BenchmarkWithStore(b *testing.B) {
	for _, load := range []struct {
		step      time.Duration
		pageBytes int
	}{{0, 1 << 20}, {time.Millisecond, 1 << 16}} {
		for _, c := range []struct {
			name  string
			store stores.Store
		}{{"on", &copyStore{}}, {"hanging", &hungStore{}}, {"failing", &failingStore{}}} {
			b.Run(fmt.Sprintf("step=%v/%s", load.step, c.name), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				above, below := newSamples(), newSamples()
				engine := visitTexts(b, load.step, load.pageBytes,
					actors.WithStore(actors.StoreConfig{Store: c.store, Model: b.Name()}))
				versus(b, onThread(engine, &above), onThread(visitTexts(b, load.step, load.pageBytes), &below))
				b.ReportMetric(above.quantile(0.5)/max(1, below.quantile(0.5)), "thread-x/floor")
			})
		}
	}
}
