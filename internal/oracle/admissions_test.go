package oracle_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// mostRunning is the most sequences at once: more than the pages are for.
const mostRunning = 6

func (r *run) admit(t *rapid.T) {
	if len(r.running) >= mostRunning {
		r.pass(t, "enough sequences")
	}
	q := r.drawAdmit(t)
	r.fetchFirst(t, &q)
	r.admitOne(t, q)
}

// admitOne admits a request and, unless its prefill is manual, computes the prompt.
func (r *run) admitOne(t *rapid.T, q messages.AdmitRequest) {
	a, ea := r.a.Admit(r.ctx, q)
	b, eb := r.b.Admit(r.ctx, q)
	r.same(t, "admit", ea, eb, admittedOf(a), admittedOf(b))
	r.compareSaved(t)
	r.remember(messages.Prefix{Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal})
	if ea == nil {
		r.take(t, []messages.AdmitRequest{q}, []messages.Admitted{a}, []messages.Admitted{b})
	}
}

// visit admits, computes and releases: it leaves something cached.
func (r *run) visit(t *rapid.T) {
	before := len(r.running)
	r.admit(t)
	if len(r.running) > before {
		s := r.running[before]
		if s.prefilling() {
			return // a manual prefill goes on later
		}
		r.releaseChosen(t, []*sequence{s}, messages.ReleaseStep{})
	}
}

func (r *run) batch(t *rapid.T) {
	if len(r.running) >= mostRunning {
		r.pass(t, "enough sequences")
	}
	var qs []messages.AdmitRequest
	for range rapid.IntRange(2, 3).Draw(t, "requests") {
		q := r.drawAdmit(t)
		if len(qs) > 0 && rapid.IntRange(0, 2).Draw(t, "the same prompt") == 2 {
			q.Namespace, q.Tokens, q.Multimodal = qs[0].Namespace, qs[0].Tokens, qs[0].Multimodal
		}
		r.remember(messages.Prefix{Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal})
		qs = append(qs, q)
	}
	a, ea := r.a.AdmitBatch(r.ctx, qs)
	b, eb := r.b.AdmitBatch(r.ctx, qs)
	r.same(t, "admit_batch", ea, eb, len(a), len(b))
	for i := range a {
		r.same(t, "admit_batch item", a[i].Err, b[i].Err, admittedOf(a[i]), admittedOf(b[i]))
	}
	r.compareSaved(t)
	r.take(t, qs, a, b)
}

// admittedOf is what of an answer can be compared as it is; tables are compared
// with all others.
func admittedOf(a messages.Admitted) any {
	type answer struct {
		Reused     int
		MissReason messages.MissReason
		Reuse      []messages.PoolReuse

		Attention   int
		Checkpoints []int
	}
	return answer{a.ReusedTokens, a.MissReason, a.Reuse, a.AttentionTokens,
		slices.Clone(append([]int{}, a.Checkpoints...))}
}

// take notes what was admitted and, unless the prefill is manual, commits the
// prompts chunk by chunk, all sequences of the batch together.
func (r *run) take(t *rapid.T, qs []messages.AdmitRequest, a, b []messages.Admitted) {
	var auto []*sequence
	tables := newTablePairs(r)
	for i, q := range qs {
		if a[i].Err != nil {
			continue
		}
		tables.compare(t, "tables of the admission", a[i].Tables, b[i].Tables)
		s := &sequence{
			id:     [2]messages.SequenceID{a[i].Sequence, b[i].Sequence},
			prefix: messages.Prefix{Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal},
			prompt: len(q.Tokens), computed: a[i].ReusedTokens, chunk: q.ChunkTokens,
			width:  max(1, q.BeamWidth),
			manual: rapid.IntRange(0, 3).Draw(t, "manual") == 3, checkpoints: slices.Clone(a[i].Checkpoints),
		}
		r.running = append(r.running, s)
		if !s.manual {
			auto = append(auto, s)
		}
	}
	for len(auto) > 0 {
		var rest []*sequence
		var goals []int
		for _, s := range auto {
			goals = append(goals, s.target(r.config.TokensPerBlock))
		}
		r.commitTo(t, auto, goals)
		for _, s := range auto {
			if s.prefilling() {
				rest = append(rest, s)
			}
		}
		auto = rest
	}
}

// commitTo commits sequences as part of the request that touched them last.
func (r *run) commitTo(t *rapid.T, all []*sequence, goals []int) {
	var steps [2][]messages.CommitStep
	for i, s := range all {
		for side := range steps {
			steps[side] = append(steps[side], messages.CommitStep{Sequence: s.id[side], Computed: goals[i]})
		}
	}
	a, ea := r.a.Commit(r.ctx, steps[0])
	b, eb := r.b.Commit(r.ctx, steps[1])
	r.sameSteps(t, "commit", stepAnswers{a, ea}, stepAnswers{b, eb})
	for i, s := range all {
		if a[i].Err == nil {
			s.computed = goals[i]
		}
	}
}

// commit commits one or two sequences in one request: prompts whose prefill is
// manual, or generated tokens, a step further, or wrongly. A sequence may stand
// there twice.
func (r *run) commit(t *rapid.T) {
	var chosen []*sequence
	var goals []int
	var steps [2][]messages.CommitStep
	for range rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "sequences") {
		s := r.drawRunning(t, func(s *sequence) bool { return s.computed < s.length() })
		goal := r.drawGoal(t, s)
		continues := rapid.Bool().Draw(t, "continues")
		chosen, goals = append(chosen, s), append(goals, goal)
		for side := range steps {
			steps[side] = append(steps[side], messages.CommitStep{Sequence: s.id[side], Computed: goal,
				SeparateRequest: !continues})
		}
	}
	a, ea := r.a.Commit(r.ctx, steps[0])
	b, eb := r.b.Commit(r.ctx, steps[1])
	r.sameSteps(t, "commit", stepAnswers{a, ea}, stepAnswers{b, eb})
	for i, s := range chosen {
		if ea == nil && a[i].Err == nil {
			s.computed = goals[i]
		}
	}
}

// drawGoal draws how far a sequence is committed.
func (r *run) drawGoal(t *rapid.T, s *sequence) int {
	goal := rapid.IntRange(max(0, s.computed-1), s.length()+1).Draw(t, "computed")
	if s.prefilling() && mostly(t, "boundary") {
		goal = s.target(r.config.TokensPerBlock)
		if rapid.Bool().Draw(t, "less") {
			goal = min(goal, (s.computed/r.config.TokensPerBlock+1)*r.config.TokensPerBlock)
		}
	}
	return goal
}
