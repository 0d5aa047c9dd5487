package actors_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// stressTime is how long the hosts press: KVACTOR_STRESS=20s for the long one.
func stressTime(t *testing.T) time.Duration {
	text := os.Getenv("KVACTOR_STRESS")
	if text == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

const stressHosts = 64

// Many hosts send random requests in too little memory. Their kernels read what the
// engine says is there and find every wrong byte, the hazard checker every access
// that nothing orders; at the end the engine holds nothing and is right.
func TestManyHosts(t *testing.T) { pressHosts(t, pressure{length: stressTime(t)}) }

// The same over a group of devices, whose links and schedules differ.
func TestManyHostsOverAGroup(t *testing.T) {
	pressHosts(t, pressure{ranks: 4, length: stressTime(t) / 2})
}

// The same with a store that is slow, fails, lies and forgets. Hosts fetch and flush, and
// admit with a fetch before.
func TestManyHostsAndAStore(t *testing.T) {
	bad := &slowStore{badStore{rnd: rand.New(rand.NewPCG(1, 1))}}
	pressHosts(t, pressure{length: stressTime(t), store: &actors.StoreConfig{
		Store: bad, Model: "m", Save: actors.SaveOnCommit, SaveBytes: 1 << 14, BreakerFailures: 8,
		BreakerPause: time.Millisecond,
	}})
}

// slowStore is a bad store that takes its time.
type slowStore struct{ badStore }

func (s *slowStore) sleep() { time.Sleep(time.Duration(s.draw(500)) * time.Microsecond) }

func (s *slowStore) Put(ctx context.Context, objects []stores.Object) error {
	s.sleep()
	return s.badStore.Put(ctx, objects)
}

func (s *slowStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	s.sleep()
	return s.badStore.Has(ctx, keys, found)
}

func (s *slowStore) Get(ctx context.Context, keys []stores.Key, bodies [][]byte) error {
	s.sleep()
	return s.badStore.Get(ctx, keys, bodies)
}

// pressure is how hosts press, and what they press.
type pressure struct {
	ranks  int // devices, 0 for one that is no group
	length time.Duration
	store  *actors.StoreConfig // nil: none
}

// pressHosts makes hosts press an engine for a time.
func pressHosts(t *testing.T, p pressure) {
	var options []actors.Option
	if p.store != nil {
		options = append(options, actors.WithStore(*p.store))
	}
	r := newRig(t, setup{
		ranks:   p.ranks,
		windows: []int{full, 16, 8},
		pages: []windows.PageCounts{{Primary: 96, Secondary: 24}, {Primary: 96, Secondary: 24},
			{Primary: 160, Secondary: 200}},
	}, options...)
	end := time.Now().Add(p.length)
	var hosts sync.WaitGroup
	var walks atomic.Int64
	all := make([]*walker, stressHosts)
	for i := range all {
		all[i] = &walker{rig: r, writer: r.newWriter("host"), rand: rand.New(rand.NewPCG(uint64(i), 1)),
			stores: p.store != nil}
	}
	quiet := make(chan struct{})
	go func() { // the device works while the hosts press
		defer close(quiet)
		for time.Now().Before(end) {
			r.sim.Drain()
			time.Sleep(time.Millisecond)
		}
	}()
	for _, w := range all {
		hosts.Go(func() {
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				if !assert.NoError(t, w.runSequence(), "sequence %d", n) {
					return
				}
				walks.Add(1)
			}
		})
	}
	hosts.Wait()
	<-quiet
	t.Log(walks.Load(), "walks")
	assert.Positive(t, walks.Load())
	r.verify()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences)
	for _, pool := range stats.Pools {
		assert.Zero(t, pool.Primary.Used, pool.Name)
		assert.Zero(t, pool.Secondary.Used, pool.Name)
	}
	for _, w := range all {
		assert.Empty(t, w.writer.Problems())
	}
	if p.store != nil {
		t.Logf("%+v", actors.StoreOf(r.Engine).Stats())
	}
	r.awaitKernels()
	leaked, err := r.Close(context.Background())
	require.NoError(t, err)
	assert.Zero(t, leaked)
	r.ended()
}

// walker is a host that runs one random sequence after the other.
type walker struct {
	*rig
	writer *host.Writer
	rand   *rand.Rand
	stores bool
}

func (w *walker) one(n int) bool { return w.rand.IntN(n) == 0 }

// prompt begins like others' prompts and ends in its own way.
func (w *walker) prompt() []messages.Token {
	tokens := run(1000*w.rand.IntN(4), 1+w.rand.IntN(60))
	at := w.rand.IntN(len(tokens))
	copy(tokens[at:], run(100_000+100*w.rand.IntN(3), len(tokens)-at))
	return tokens
}

// runSequence admits one sequence or a few, grows and forks them, and releases all.
// A refusal for want of pages is no failure.
func (w *walker) runSequence() error {
	if err := w.interfere(); err != nil {
		return err
	}
	if w.stores && w.one(3) {
		if _, err := actors.StoreOf(w.Engine).Fetch(context.Background(),
			messages.Prefix{Tokens: w.prompt()}); err != nil {
			return err
		}
	}
	if w.stores && w.one(10) {
		if _, err := actors.StoreOf(w.Engine).Flush(context.Background(), 0); err != nil {
			return err
		}
	}
	running, err := w.arrive()
	for _, s := range running {
		err = errors.Join(err, w.grow(s))
	}
	if err == nil && len(running) > 0 && w.one(4) {
		var forks []*sequence
		forks, err = w.fork(running[0])
		running = append(running, forks...)
	}
	for _, s := range running {
		steps := []messages.ReleaseStep{{Sequence: s.id, After: s.last, Discard: w.one(8)}}
		results, failed := w.Release(context.Background(), steps)
		if failed == nil {
			failed = results[0].Err
		}
		err = errors.Join(err, failed)
	}
	return err
}

// arrive admits one to three sequences and computes their prompts.
func (w *walker) arrive() ([]*sequence, error) {
	requests := make([]messages.AdmitRequest, 1+w.rand.IntN(3))
	for i := range requests {
		requests[i].Tokens = w.prompt()
		if w.stores && w.one(2) {
			requests[i].Fetch = time.Duration(w.rand.IntN(2000)) * time.Microsecond
		}
		if w.one(3) {
			requests[i].ChunkTokens = tpb * (1 + w.rand.IntN(4))
		}
		if w.one(4) {
			requests[i].Session = "shared"
		}
		if w.one(4) {
			requests[i].Retention = &messages.Retention{Ranges: []messages.RetentionRange{
				{End: messages.EndOfPrompt, Priority: messages.Priority(w.rand.IntN(101)),
					Duration: time.Duration(1+w.rand.IntN(20)) * time.Millisecond},
			}}
		}
	}
	results, err := w.AdmitBatch(context.Background(), requests)
	if err != nil {
		return nil, err
	}
	var running []*sequence
	for i := range results {
		if err := results[i].Err; err != nil {
			if !errors.Is(err, messages.ErrOutOfPages) {
				return running, err
			}
			continue
		}
		s := admitted(requests[i], &results[i])
		running = append(running, s)
		for s.computed < s.prompt && err == nil {
			n := s.prompt
			if chunk := requests[i].ChunkTokens; chunk > 0 {
				n = min(n, (s.computed+chunk)/tpb*tpb)
			}
			err = w.compute(w.writer, s, n)
		}
	}
	return running, err
}

// grow decodes some tokens and takes some back.
func (w *walker) grow(s *sequence) error {
	for range w.rand.IntN(12) {
		err := w.decode(w.writer, s, messages.Token(200_000+w.rand.IntN(2)))
		switch {
		case errors.Is(err, messages.ErrOutOfPages):
			return nil
		case err != nil:
			return err
		}
	}
	if generated := len(s.chains) - s.prompt; generated > 0 && w.one(3) {
		n := 1 + w.rand.IntN(generated)
		if err := w.RewindOne(context.Background(), s.id, n); err != nil {
			if errors.Is(err, messages.ErrNotSupported) {
				return nil
			}
			return err
		}
		s.chains = s.chains[:len(s.chains)-n]
		s.computed = min(s.computed, len(s.chains))
	}
	return nil
}

// fork continues a sequence and its fork in different ways.
func (w *walker) fork(s *sequence) ([]*sequence, error) {
	ids, err := w.ForkOne(context.Background(), s.id, 1)
	if err != nil {
		return nil, err
	}
	f := *s
	f.id, f.chains, f.ready = ids[0], append([]host.Chain(nil), s.chains...),
		append([]gpu.Ticket(nil), s.ready...)
	forks := []*sequence{&f}
	for n, x := range []*sequence{&f, s} {
		if err := w.decode(w.writer, x, messages.Token(300_000+n)); err != nil &&
			!errors.Is(err, messages.ErrOutOfPages) {
			return forks, err
		}
	}
	return forks, nil
}

// interfere does what belongs to no sequence. Calls with little time may end with
// their contexts.
func (w *walker) interfere() error {
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Duration(w.rand.IntN(200))*time.Microsecond)
	defer cancel()
	prefix := messages.Prefix{Tokens: w.prompt()}
	var err error
	switch w.rand.IntN(12) {
	case 0:
		_, err = w.Lookup(ctx, prefix)
	case 1:
		_, err = w.Prefetch(ctx, prefix)
	case 2:
		_, err = w.Invalidate(ctx, messages.Selector{Session: "shared"})
	case 3:
		_, err = w.Invalidate(ctx, messages.Selector{Prefix: &prefix})
	case 4:
		var pinned messages.Pinned
		if pinned, err = w.Pin(ctx, prefix); err == nil {
			err = w.Unpin(context.Background(), pinned.Pin)
		}
	case 5:
		if w.one(20) {
			err = w.Reset(ctx)
		}
	case 6:
		if w.one(20) {
			err = w.Check(context.Background())
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, messages.ErrOutOfPages) {
		return nil
	}
	return err
}
