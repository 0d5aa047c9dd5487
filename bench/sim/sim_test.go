package sim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// play runs a plan and, if it fails, prints what is left of it.
func play(t *testing.T, p plan) *world {
	t.Helper()
	w, err := run(p)
	if err != nil && w != nil {
		t.Fatalf("go test ./bench/sim -run=TestSeeds -seed=%d -steps=%d\n%s", p.seed, p.steps,
			explain(shrink(p, w.step, 200, err), 60))
	}
	require.NoError(t, err)
	return w
}

// TestSim plays a million steps of many engines, a tenth in a short run, and all that a
// run is for must have happened in them.
func TestSim(t *testing.T) {
	total, steps, most := tally{}, 0, 1_000_000
	if testing.Short() {
		most /= 10
	}
	for seed := uint64(9000); steps < most; seed++ {
		w := play(t, plan{seed: seed, steps: 2000})
		steps += w.step + 1
		total.addAll(w.counts)
	}
	for _, what := range []string{
		"quiet points", "recoveries", "rebalanced", "cancelled, admit", "pages verified",
		"pages, evicted", "pages, offloaded",
		"pages, onboarded", "pages, reused in part", "refusals, out_of_pages", "requests, fork",
		"requests, rewind", "sequences lost",
		"panics, coordinator, in a change", "panics, tree, in a change", "panics, offloader, in a change",
		"panics, pool, in a change",
		"panics, events, in a change", "encoder tokens reused", "pages verified, other ranks",
		"tokens reused behind a checkpoint",
	} {
		assert.Positive(t, total[what], what)
	}
}

// TestSimOnceFailed plays plans that have found mistakes of the engine.
func TestSimOnceFailed(t *testing.T) {
	for what, plans := range map[string][]plan{
		// A look ahead that began again without end, messages of a recovery that were
		// sent twice, a rebalance cut short, admissions that leaked when an actor
		// failed, copies on write that came before the kernel whose rows
		// they copy.
		"of the first days": of(2000, 3, 10, 13, 14, 16, 17, 29, 47, 63, 68, 73, 106, 148, 339, 408, 460,
			722),
		// No one was told where its victims went.
		"an offloader fails while a failed copy on write is taken back": of(8000, 30094),
		// Its clean copy in host memory must not outlive it.
		"a rebalance cannot move a cached block": of(7000, 50071),
		// The kernel before a step reads all their pages, not only the last.
		"beams that no one follows": of(2000, 51122),
		// What expires must do so before the pools choose their victims, also after a
		// recovery.
		"a tree fails as retention ends": of(12_000, 51238),
		// The messages of a step must not come behind the recovery that undoes it.
		"a pool reads what a step sent after it was taken back": of(9000, 800_513),
		// Accounts must add up for the tenant, too.
		"a lost step is about to take a page of another tenant, who keeps it": of(9000, 821_116),
		// What it was to release ran on with no one to end it.
		"one side of a model that encodes fails, then the other while it undoes": of(1000, 9_034_414),
		// The commit that was told of the loss has named a kernel, too. In a debug
		// build, which has rounds of its own.
		"a rebalance moves what a lost sequence holds": of(2000, 9084),
		// The recovery's own wait stood behind one that never ended.
		"an offloader fails over the end of a wait for the device": of(3000, 9209, 9440, 9481),
		// Blocks that an undone step gives back were still counted as shared.
		"an append is undone that had offered its blocks": of(3000, 9122, 10543),
	} {
		t.Run(what, func(t *testing.T) {
			for _, p := range plans {
				play(t, p)
			}
		})
	}
}

// of gives plans of so many steps.
func of(steps int, seeds ...uint64) (plans []plan) {
	for _, seed := range seeds {
		plans = append(plans, plan{seed: seed, steps: steps})
	}
	return plans
}

// TestSimHoldsWhatHostsKnow plays a step of beams whose copy on write fails, and a
// coordinator that fails before their host hears that they are lost: it launches a
// kernel on pages that must be theirs still.
func TestSimHoldsWhatHostsKnow(t *testing.T) {
	play(t, plan{seed: 741_089_740, steps: 15_000})
}

// TestSimOfEncoders plays seeds of encoder–decoder models that have found mistakes:
// an engine that went on when one side had failed, a release that the join's panic
// broke off and that could not be told any more, an append of which no one heard, a
// sequence that only the cross side had lost, a fork refused that was aborted, and a
// reserve that ended while the prefill that it stood for still held its pages,
// what one side was to take back and failed over, too.
func TestSimOfEncoders(t *testing.T) {
	for _, p := range []plan{
		{seed: 18, steps: 2000}, {seed: 186, steps: 3000}, {seed: 228, steps: 8000},
		{seed: 291, steps: 7000}, {seed: 347, steps: 4000},
		{seed: 2_310_179, steps: 2000}, {seed: 7_000_655, steps: 16_000},
		{seed: 577_333_824, steps: 2000},
	} {
		require.True(t, encodes(p.seed))
		play(t, p)
	}
}

// TestSimOfStates plays models with recurrent layers, among them forks of which one copy
// failed while another still read the working page.
func TestSimOfStates(t *testing.T) {
	plans := append(of(2000, 9087, 9088, 9089, 9091, 9092, 9093, 9094, 9095, 9096, 9098, 9099, 9100),
		of(3000, 9347, 9812)...)
	total := tally{}
	for _, p := range plans {
		require.True(t, recurrent(p.seed))
		total.addAll(play(t, p).counts)
	}
	for _, what := range []string{"tokens reused behind a checkpoint", "requests, fork", "recoveries",
		"rebalanced"} {
		assert.Positive(t, total[what], what)
	}
}

// TestSimOfStatesAlone plays models without attention.
func TestSimOfStatesAlone(t *testing.T) {
	total := tally{}
	for _, p := range append(of(2000, 3003, 3013, 3024, 3079, 3097, 3125, 3076),
		of(3000, 3600, 3614, 3680, 17_001, 17_044, 17_622)...) {
		require.True(t, statesAlone(p.seed), "%d", p.seed)
		total.addAll(play(t, p).counts)
	}
	for _, what := range []string{"tokens reused behind a checkpoint", "requests, fork", "recoveries",
		"pages verified"} {
		assert.Positive(t, total[what], what)
	}
}

// TestSimOfStores plays stores that delay, fail, hang, lie, forget and duplicate. One seed has
// found a store's actor that panicked over blocks behind those that it had forgotten.
func TestSimOfStores(t *testing.T) {
	total := tally{}
	plans := append(of(2000, 9600, 9602, 9603, 9604, 9605, 9606, 9607, 9609),
		of(3000, 4_000_000_046)...)
	for seed := range uint64(16) { // few of them fetch what a store has
		if seed += 4_000_000_080; stored(seed) {
			plans = append(plans, plan{seed: seed, steps: 3000})
		}
	}
	for _, p := range plans {
		require.True(t, stored(p.seed))
		total.addAll(play(t, p).counts)
	}
	for _, what := range []string{
		"blocks fetched", "store calls that fail", "store calls that hang", "bodies that are wrong",
		"objects under a wrong key", "recoveries",
	} {
		assert.Positive(t, total[what], what)
	}
}

// TestSimOfForecast plays engines whose policy predicts the next use, with host memory that evicts
// by it too.
func TestSimOfForecast(t *testing.T) {
	total := tally{}
	// Those from 2600 on have a store.
	for _, p := range of(2000, 2000, 2001, 2002, 2003, 2005, 2006, 2007, 2605, 2616, 2617) {
		require.True(t, forecasts(p.seed))
		total.addAll(play(t, p).counts)
	}
	for _, what := range []string{"tokens reused", "recoveries"} {
		assert.Positive(t, total[what], what)
	}
}

// TestSimReplays holds a run to its promise: the same plan is the same run.
func TestSimReplays(t *testing.T) {
	for _, seed := range []uint64{21, 22, 23, 25, 9606} {
		p := plan{seed: seed, steps: 600, tell: true}
		first := play(t, p).history
		again := play(t, p).history
		assert.Equal(t, first, again)
	}
}

// TestSimFindsCarelessHosts plays hosts that do not wait for their tickets: the
// run must fail, and fail in the same way with most steps left out.
func TestSimFindsCarelessHosts(t *testing.T) {
	p := plan{seed: 2, steps: 2000, careless: true}
	w, err := run(p)
	require.Error(t, err)
	assert.Regexp(t, "nothing orders|wrong bytes", err)
	small := shrink(p, w.step, 150, err)
	left := small.steps - len(small.skip)
	assert.Less(t, left, w.step/4)
	_, again := run(small)
	assert.Equal(t, kind(err), kind(again))
}

func TestShrinkKeepsTheKind(t *testing.T) {
	assert.Empty(t, kind(nil))
	assert.Equal(t, kind(errors.New("step 12: page 7 is lost")),
		kind(errors.New("step 3: page 41 is lost")))
	assert.NotEqual(t, kind(errors.New("step 12: page 7 is lost")),
		kind(errors.New("step 12: wrong bytes")))
}
