package oracle_test

import (
	"context"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Comparison compares two implementations.
type Comparison struct {
	// Open starts both with one configuration, which holds the clock.
	Open func(oracle.Config) (a, b Engine)
	// Without names operations to leave out, to find out which one a
	// difference needs: the keys of the map in Check.
	Without []string
}

// Compare draws a world and a run of operations and fails where the answers of
// a and b differ.
func Compare(t *rapid.T, open func(oracle.Config) (a, b Engine)) {
	Comparison{Open: open}.Check(t)
}

// Check is Compare.
func (c Comparison) Check(t *rapid.T) {
	r := &run{ctx: context.Background(), open: c.Open}
	r.config = drawConfig(t, func() time.Duration { return r.now })
	r.start()
	all := map[string]func(*rapid.T){
		"admit": r.admit, "batch": r.batch, "visit": r.visit, "visit2": r.visit, "commit": r.commit,
		"step": r.step, "draft": r.draft,
		"rewind": r.rewind, "fork": r.fork, "release": r.release, "release2": r.release,
		"lookup": r.lookup, "pin": r.pin, "unpin": r.unpin, "prefetch": r.prefetch,
		"prefetch2":  r.prefetch,
		"invalidate": r.invalidate, "reset": r.reset, "advance": r.advance,
		"snapshot": r.snapshot, "wrong": r.wrong,
		"fetch": r.fetch, "fetch2": r.fetch, "refetch": r.refetch, "refetch2": r.refetch,
		"lookupStored": r.lookupStored, "flush": r.flush, "outage": r.outage, "reopen": r.reopen,
	}
	maps.DeleteFunc(all,
		func(name string, _ func(*rapid.T)) bool { return slices.Contains(c.Without, name) })
	all[""] = r.compareState
	t.Repeat(all)
	na, ea := r.a.Close(r.ctx)
	nb, eb := r.b.Close(r.ctx)
	r.same(t, "close", ea, eb, na, nb)
}

// run is one comparison under way, and what the host knows.
type run struct {
	ctx     context.Context
	open    func(oracle.Config) (a, b Engine)
	config  oracle.Config
	now     time.Duration
	a, b    Engine
	hashes  *bijection[kvevents.Hash]
	mirrors [2]mirror

	seen    []messages.Prefix // prompts and sequences of before
	running []*sequence
	pins    [][2]messages.PinID
	gone    [][2]messages.SequenceID // handles of released sequences
	down    bool                     // the stores fail
	passed  int                      // operations that had nothing to do
}

// sequence is a running sequence as the host knows it.
type sequence struct {
	id       [2]messages.SequenceID
	prefix   messages.Prefix // of beam 0, generated tokens included
	prompt   int
	computed int
	chunk    int
	width    int
	manual   bool // an append commits nothing
	// checkpoints are the positions at which a commit makes a checkpoint.
	checkpoints []int
}

func (s *sequence) length() int      { return len(s.prefix.Tokens) }
func (s *sequence) prefilling() bool { return s.computed < s.prompt }

// target is how far the next commit of the prompt goes: as far as it may reach, or to
// the next checkpoint.
func (s *sequence) target(tpb int) int {
	to := s.prompt
	if s.chunk > 0 {
		to = min(to, (s.computed+s.chunk)/tpb*tpb)
	}
	for _, position := range s.checkpoints {
		if position > s.computed {
			return min(to, position)
		}
	}
	return to
}

// remember keeps a prefix to draw prompts from.
func (r *run) remember(q messages.Prefix) {
	r.seen = append(r.seen, q)
	if len(r.seen) > 12 {
		r.seen = r.seen[1:]
	}
}

// pass ends an operation that has nothing to do. rapid gives up on a test that
// skips a hundred actions in a row without a draw, which an input made by a
// fuzzer does soon.
func (r *run) pass(t *rapid.T, reason string) {
	if r.passed++; r.passed%50 == 0 {
		rapid.Bool().Draw(t, "pass")
	}
	t.Skip(reason)
}

// drawRunning draws one of the sequences for which want holds.
func (r *run) drawRunning(t *rapid.T, want func(*sequence) bool) *sequence {
	fit := slices.DeleteFunc(slices.Clone(r.running), func(s *sequence) bool { return !want(s) })
	if len(fit) == 0 {
		r.pass(t, "no sequence for it")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(t, "sequence")]
}
