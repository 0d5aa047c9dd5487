package encoderdecoder_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

func TestRefusals(t *testing.T) {
	r := newRig(t, setup{pages: pages(40, 40)})
	defer r.end()
	item := messages.MultimodalItem{Start: 3, Length: 2}
	for name, c := range map[string]struct {
		request messages.AdmitRequest
		want    messages.Code
		message string
	}{
		"no encoder": {ask(nil, run(0, 4)), messages.ErrBadRequest,
			"encoder tokens are empty: the model is an encoder-decoder"},
		"no prompt": {ask(run(0, 4), nil), messages.ErrBadRequest, "tokens is empty"},
		"negative": {ask([]messages.Token{1, -2}, run(0, 4)), messages.ErrBadRequest,
			"encoder input: token -2 at position 1 is not in 0 … 2³¹−1"},
		"too long": {ask(run(0, long+1), run(0, 4)), messages.ErrTooLong,
			"an encoder input of 31 tokens is over encoder_max_len 30"},
		"prompt too long": {ask(run(0, long), run(0, full+1)), messages.ErrTooLong,
			"a prompt of 65 tokens is over max_seq_len 64"},
		"item outside": {messages.AdmitRequest{Encoder: run(0, 4), Tokens: run(0, 9),
			EncoderItems: []messages.MultimodalItem{item}},
			messages.ErrBadRequest, "encoder input: multimodal item [3, 3+2) leaves the prompt of 4 tokens"},
		"retention": {messages.AdmitRequest{Encoder: run(0, 4), Tokens: run(0, 9),
			EncoderRetention: &messages.Retention{Ranges: []messages.RetentionRange{{Start: 2, End: 1}}}},
			messages.ErrBadRequest, "retention range [2, 1) is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.picture()
			_, err := r.admit(c.request)
			require.ErrorIs(t, err, c.want)
			assert.EqualError(t, err, c.message)
			assert.Equal(t, before, r.picture())
			if !errors.Is(c.want, messages.ErrTooLong) {
				assert.EqualError(t, r.Validate(c.request), c.message)
			}
		})
	}
	assert.NoError(t, r.Validate(ask(run(0, long), run(0, 4))))
	l := r.start(ask(run(0, long), run(0, full)))
	assert.Len(t, l.admitted.Cross.Table, 8)
	_, err := r.TablesOf(context.Background(), 99)
	assert.ErrorIs(t, err, messages.ErrUnknownSequence)
}

// Models without an encoder have no use for encoder tokens.
func TestEncoderTokensNeedAnEncoder(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	config := (&setup{pages: pages(4, 4)}).config(device)
	_, err = actors.Spawn(system().Root, actors.Config{Model: config.Model,
		Cache: windows.DefaultConfig(), Device: device})
	require.ErrorContains(t, err, "cross_kv_cache_fraction is missing")
	config.Pages = config.Pages[:1]
	_, err = actors.Spawn(system().Root, config)
	require.ErrorContains(t, err, "page counts for 1 pools, the model has 2")

	config.Model.CrossLayers, config.Model.CrossKVHeads, config.Model.EncoderMaxLen = 0, 0, 0
	config.Cache.CrossKVCacheFraction = 0
	e, err := actors.Spawn(system().Root, config)
	require.NoError(t, err)
	ctx := context.Background()
	_, err = e.Admit(ctx, ask(run(100, 4), run(0, 4)))
	require.ErrorIs(t, err, messages.ErrNotSupported)
	_, err = e.Lookup(ctx, messages.Prefix{Tokens: run(0, 4), Encoder: run(100, 4)})
	require.ErrorIs(t, err, messages.ErrNotSupported)
	_, err = e.Invalidate(ctx,
		messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 4), Encoder: run(100, 4)}})
	require.ErrorIs(t, err, messages.ErrNotSupported)
	_, err = e.Close(ctx)
	require.NoError(t, err)
}

// Whichever actor fails, the sequences that run go on.
func TestRecovery(t *testing.T) {
	for _, name := range []string{
		"coordinator", "tree", "offloader", "pool:wfullh1", "pool:cross_h2",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t,
				setup{pages: []windows.PageCounts{{Primary: 20, Secondary: 4}, {Primary: 9, Secondary: 4}}})
			defer r.end()
			first := r.start(ask(run(100, 8), run(0, 6)))
			require.NoError(t, r.points.Arm(name))
			second := r.start(ask(run(200, 7), run(0, 6)))
			third := r.start(ask(run(100, 8), run(50, 6)))
			r.verify()
			require.NoError(t, r.decode(first, 1))
			require.NoError(t, r.decode(second, 2))
			require.NoError(t, r.decode(third, 3))
			r.verify()
			stats, err := r.Stats(context.Background())
			require.NoError(t, err)
			assert.EqualValues(t, 1, stats.Restarts)
		})
	}
	r := newRig(t, setup{pages: pages(4, 4)})
	defer r.end()
	assert.ErrorIs(t, r.points.Arm("no one"), messages.ErrBadRequest)
}

// An input whose pages cannot be brought back is computed again.
func TestFailedOnboardsOfInputs(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 20}, {Primary: 3, Secondary: 6}}})
	defer r.end()
	r.store(ask(run(100, 10), run(0, 4)))
	r.store(ask(run(200, 10), run(0, 4)))
	r.sim.Fail(gpu.Onboard, 1)
	l := r.start(ask(run(100, 10), run(0, 4)))
	assert.Less(t, l.admitted.Cross.ReusedTokens, 10)
	r.verify()
}

// Pages that are still held when the engine closes are counted on both sides.
func TestCloseCountsLeaks(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	_, err := r.admit(ask(run(100, 8), run(0, 12)))
	require.NoError(t, err)
	leaked, err := r.Close(context.Background())
	require.NoError(t, err)
	assert.Equal(t, 5, leaked)
	again, err := r.Close(context.Background())
	require.NoError(t, err)
	assert.Equal(t, 5, again)
	_, err = r.Admit(context.Background(), ask(run(100, 8), run(0, 12)))
	require.ErrorIs(t, err, messages.ErrClosed)
	require.NoError(t, r.device.Close())
}

// stuckDevice does not come to an end.
type stuckDevice struct {
	gpu.Device
	released chan struct{} // nil: not stuck
}

// Sync waits until the device is released.
func (d *stuckDevice) Sync(ctx context.Context, t gpu.Ticket) error {
	if d.released != nil {
		select {
		case <-d.released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d.Device.Sync(ctx, t)
}

// At its deadline a Close returns, and every call that waits is answered, whichever
// kind of pools it is about. One that is called meanwhile goes on with the end.
func TestACloseEndsWithItsDeadline(t *testing.T) {
	ctx := context.Background()
	for _, prefix := range []messages.Prefix{{Encoder: run(100, 8)},
		{Encoder: run(100, 8), Tokens: run(0, 12)}} {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
		require.NoError(t, err)
		stuck := &stuckDevice{Device: device}
		var points enginetest.Failpoints
		e, err := actors.Spawn(system().Root, (&setup{pages: pages(20, 20)}).config(stuck),
			enginetest.WithFailpoints(&points))
		require.NoError(t, err)
		a, err := e.Admit(ctx, ask(run(100, 8), run(0, 12)))
		require.NoError(t, err)
		stream, err := device.NewStream("host")
		require.NoError(t, err)
		kernel, err := device.Launch(stream, gpu.Kernel{Nanos: 1000})
		require.NoError(t, err)
		_, err = e.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: 12, After: kernel}})
		require.NoError(t, err)
		stuck.released = make(chan struct{})
		require.NoError(t, points.Arm("tree")) // the recovery waits for the kernel
		answers := make(chan error, 6)
		for range cap(answers) {
			go func() {
				_, err := e.Lookup(ctx, prefix)
				answers <- err
			}()
		}
		time.Sleep(10 * time.Millisecond)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		first := make(chan error, 1)
		go func() {
			_, err := e.Close(short)
			first <- err
		}()
		time.Sleep(10 * time.Millisecond)
		second := make(chan error, 1)
		go func() {
			_, err := e.Close(ctx)
			second <- err
		}()
		assert.ErrorIs(t, <-first, context.DeadlineExceeded)
		cancel()
		for range cap(answers) {
			assert.ErrorIs(t, <-answers, messages.ErrClosed)
		}
		close(stuck.released)
		require.NoError(t, <-second)
		require.NoError(t, device.Close())
	}
}

// What has not begun when its context ends is dropped.
func TestContexts(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Admit(ctx, ask(run(100, 8), run(0, 12)))
	require.ErrorIs(t, err, context.Canceled)
	r.assertCross(0, 0, 20)
}

// A name that is taken is refused, with all that was started given back.
func TestNames(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	for _, taken := range []string{"engine"} {
		pid, err := system().Root.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {}), taken)
		require.NoError(t, err)
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		require.NoError(t, err)
		_, err = actors.Spawn(system().Root, (&setup{pages: pages(4, 4)}).config(device),
			actors.WithName("engine"))
		require.ErrorContains(t, err, "engine")
		memory, err := device.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.Total, memory.Free)
		require.NoError(t, system().Root.StopFuture(pid).Wait())
	}
}

// Hosts that are actors send the same records.
func TestAHostThatIsAnActor(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	request := &messages.Admit{Requests: []messages.AdmitRequest{ask(run(100, 6), run(0, 4))}}
	answer, err := system().Root.RequestFuture(r.PID(), request, time.Minute).Result()
	require.NoError(t, err)
	admitted := answer.(*messages.Admit)
	require.Same(t, request, admitted)
	require.NoError(t, admitted.Results[0].Err)
	l := r.begin(request.Requests[0], admitted.Results[0])
	r.compute(l, 4)
	stats, err := system().Root.RequestFuture(r.PID(), &inspect.ReadStats{}, time.Minute).Result()
	require.NoError(t, err)
	assert.Equal(t, 2, stats.(*inspect.ReadStats).Stats.Pools[1].Primary.Used)
	r.verify()
}

// Submit is for hosts that do not wait.
func TestSubmit(t *testing.T) {
	r := newRig(t, setup{pages: pages(20, 20)})
	defer r.end()
	m := &messages.Lookup{Prefix: messages.Prefix{Encoder: run(0, 4)}}
	done := make(chan error, 1)
	require.NoError(t, r.Submit(m, func(err error) { done <- err }))
	require.NoError(t, <-done)
	require.NoError(t, m.Err)
}

// Eight-bit elements have scales, cross attention its own.
func TestScales(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, setup{windows: []int{full, 8}, dtype: windows.FP8,
		pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}, {Primary: 8}}})
	defer r.end()
	scales, err := r.Scales(ctx)
	require.NoError(t, err)
	want := []messages.LayerScale{
		{Layer: 0, K: 1, V: 1}, {Layer: 1, K: 1, V: 1}, {Layer: 0, Cross: true, K: 1, V: 1},
		{Layer: 1, Cross: true, K: 1, V: 1},
	}
	assert.Equal(t, want, scales)
	own := []messages.LayerScale{{Layer: 1, Cross: true, K: 0.5, V: 2}, {Layer: 1, K: 3, V: 4}}
	require.NoError(t, r.SetScales(ctx, own))
	want[3], want[1] = own[0], own[1]
	for _, name := range []string{"tree", "coordinator", "pool:cross_h2"} {
		require.NoError(t, r.points.Arm(name))
		r.store(ask(run(100, 4), run(0, 4)))
		scales, err = r.Scales(ctx)
		require.NoError(t, err)
		assert.Equal(t, want, scales, "after the failure of %s", name)
	}
	for _, bad := range []messages.LayerScale{{Layer: 0, K: 0, V: 1},
		{Layer: 0, K: 1, V: float32(math.Inf(1))}, {Layer: 0, K: float32(math.NaN()), V: 1}} {
		assert.ErrorIs(t, r.SetScales(ctx, []messages.LayerScale{{Layer: 0, K: 9, V: 9}, bad}),
			messages.ErrBadRequest)
	}
	assert.ErrorIs(t, r.SetScales(ctx, []messages.LayerScale{{Layer: 2, Cross: true, K: 1, V: 1}}),
		messages.ErrNotSupported)
	scales, err = r.Scales(ctx)
	require.NoError(t, err)
	assert.Equal(t, want, scales)
}
