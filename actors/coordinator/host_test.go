package coordinator_test

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// tryAdmit admits one sequence; a refusal must have changed nothing.
func (w *world) tryAdmit(r messages.AdmitRequest) (messages.Admitted, *life, error) {
	w.t.Helper()
	before := w.picture()
	m := &messages.Admit{Requests: []messages.AdmitRequest{r}}
	w.Do(m)
	require.NoError(w.t, m.Err)
	if err := m.Results[0].Err; err != nil {
		require.Equal(w.t, before, w.picture(), "a refused admission changed something: %v", err)
		return m.Results[0], nil, err
	}
	l := w.started(&r, &m.Results[0])
	w.check()
	return m.Results[0], l, nil
}

// started is the host's view of an admitted sequence.
func (w *world) started(r *messages.AdmitRequest, a *messages.Admitted) *life {
	ns := r.Namespace
	if len(r.Encoder) > 0 {
		ns.Encoder = coordinator.EncoderKey(r.Encoder, r.EncoderItems)
	}
	chains := host.Chains(messages.Prefix{Namespace: ns, Tokens: r.Tokens, Multimodal: r.Multimodal})
	l := &life{id: a.Sequence, ns: ns, tokens: r.Tokens, prompt: len(r.Tokens), computed: a.ReusedTokens, chunk: r.ChunkTokens}
	if a.Cross != nil {
		l.input = host.Chains(messages.Prefix{Namespace: ns, Tokens: r.Encoder})
		l.reused, l.encoded = a.Cross.ReusedTokens, a.Cross.ReusedTokens == len(r.Encoder)
	}
	for range max(1, r.BeamWidth) {
		l.beams = append(l.beams, append([]host.Chain(nil), chains...))
	}
	w.lives[l.id] = l
	return l
}

// admit takes a sequence in and does not compute it.
func (w *world) admit(tokens []messages.Token) (messages.Admitted, *life) {
	w.t.Helper()
	r := messages.AdmitRequest{Tokens: tokens}
	if w.selfPools() < len(w.shapes) {
		r.Encoder = run(5000, 6)
	}
	return w.admitAs(r)
}

func (w *world) admitAs(r messages.AdmitRequest) (messages.Admitted, *life) {
	w.t.Helper()
	a, l, err := w.tryAdmit(r)
	require.NoError(w.t, err)
	return a, l
}

// admitBatch takes several in; refused ones are nil.
func (w *world) admitBatch(requests ...messages.AdmitRequest) ([]messages.Admitted, []*life) {
	w.t.Helper()
	m := &messages.Admit{Requests: requests}
	w.Do(m)
	require.NoError(w.t, m.Err)
	lives := make([]*life, len(requests))
	for i := range requests {
		if m.Results[i].Err == nil {
			lives[i] = w.started(&requests[i], &m.Results[i])
		}
	}
	w.check()
	return m.Results, lives
}

// commitTo computes and commits the tokens up to n.
func (w *world) commitTo(l *life, n int) messages.StepResult {
	w.t.Helper()
	if n > l.computed {
		w.write(l, l.computed, n)
	}
	m := &messages.Commit{Steps: []messages.CommitStep{{Sequence: l.id, Computed: n}}}
	w.Do(m)
	require.NoError(w.t, m.Results[0].Err)
	l.computed = n
	w.check()
	return m.Results[0]
}

// prefill computes the prompt, in chunks if it is chunked.
func (w *world) prefill(l *life) {
	w.t.Helper()
	for l.computed < l.prompt {
		w.commitTo(l, l.reach())
	}
}

// reach is how far the next commit of a prompt may go.
func (l *life) reach() int {
	if l.chunk == 0 {
		return l.prompt
	}
	return min(l.prompt, (l.computed+l.chunk)/tpb*tpb)
}

// start admits and computes a prompt.
func (w *world) start(tokens []messages.Token) *life {
	w.t.Helper()
	_, l := w.admit(tokens)
	w.prefill(l)
	return l
}

// store leaves a prompt in the cache.
func (w *world) store(tokens []messages.Token) {
	w.t.Helper()
	w.release(w.start(tokens))
}

// tryAppend adds tokens to sequences of beam width 1 in one engine step, as
// many for each; what the model computes in it is written and committed.
func (w *world) tryAppend(tokens []messages.Token, lives ...*life) []messages.StepResult {
	w.t.Helper()
	m := &messages.Append{}
	for _, l := range lives {
		m.Steps = append(m.Steps, messages.AppendStep{Sequence: l.id, Tokens: tokens})
	}
	w.Do(m)
	require.NoError(w.t, m.Err)
	for i, l := range lives {
		if m.Results[i].Err == nil {
			w.grown(l, tokens)
		}
	}
	w.bury(m.Results...)
	w.check()
	for i, l := range lives {
		if m.Results[i].Err == nil {
			w.commitTo(l, l.length()-1)
		}
	}
	return m.Results
}

// bury lets sequences go that the engine calls lost.
func (w *world) bury(results ...messages.StepResult) {
	w.t.Helper()
	for i := range results {
		if !errors.Is(results[i].Err, messages.ErrSequenceLost) {
			continue
		}
		m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: results[i].Sequence}}}
		w.Do(m)
		require.ErrorIs(w.t, m.Results[0].Err, messages.ErrSequenceLost)
		delete(w.lives, results[i].Sequence)
	}
}

// buryLost releases the sequences that are lost.
func (w *world) buryLost() {
	for id := range w.lives {
		r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
		w.Do(r)
		w.bury(messages.StepResult{Sequence: id, Err: r.Results[0].Err})
	}
}

// grown adds tokens to what the host knows.
func (w *world) grown(l *life, tokens []messages.Token) {
	chains := l.beams[0]
	at := host.Root(l.ns)
	if len(chains) > 0 {
		at = chains[len(chains)-1]
	}
	for _, token := range tokens {
		at = at.Next(token, messages.Cover{})
		l.beams[0] = append(l.beams[0], at)
	}
	l.tokens = append(append([]messages.Token(nil), l.tokens...), tokens...)
}

func (w *world) append(l *life, tokens ...messages.Token) messages.StepResult {
	w.t.Helper()
	r := w.tryAppend(tokens, l)[0]
	require.NoError(w.t, r.Err)
	return r
}

// tryBeams is one step of a sequence with beams.
func (w *world) tryBeams(l *life, steps ...messages.BeamStep) messages.StepResult {
	w.t.Helper()
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Beams: steps}}}
	w.Do(m)
	if m.Results[0].Err != nil {
		w.bury(m.Results...)
		w.check()
		return m.Results[0]
	}
	w.grownBeams(l, steps)
	w.check()
	w.commitTo(l, l.length()-1)
	return m.Results[0]
}

// grownBeams makes the beams what a step has made them.
func (w *world) grownBeams(l *life, steps []messages.BeamStep) {
	beams := make([][]host.Chain, len(steps))
	for i, s := range steps {
		parent := l.beams[s.Parent]
		beams[i] = append(append([]host.Chain(nil), parent...), parent[len(parent)-1].Next(s.Token, messages.Cover{}))
	}
	l.beams = beams
}

func (w *world) fork(l *life, n int) []*life {
	w.t.Helper()
	m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: l.id, Count: n}}}
	w.Do(m)
	require.NoError(w.t, m.Results[0].Err)
	var forks []*life
	for _, id := range m.Results[0].Forks {
		f := *l
		f.id = id
		f.beams = [][]host.Chain{append([]host.Chain(nil), l.beams[0]...)}
		w.lives[id] = &f
		forks = append(forks, &f)
	}
	w.check()
	return forks
}

func (w *world) rewind(l *life, n int) error {
	w.t.Helper()
	before := w.picture()
	m := &messages.Rewind{Steps: []messages.RewindStep{{Sequence: l.id, Tokens: n}}}
	w.Do(m)
	if err := m.Results[0].Err; err != nil {
		require.Equal(w.t, before, w.picture())
		return err
	}
	l.beams[0] = l.beams[0][:l.length()-n]
	l.tokens = l.tokens[:l.length()]
	l.computed = min(l.computed, l.length())
	w.check()
	return nil
}

func (w *world) release(lives ...*life) {
	w.t.Helper()
	m := &messages.Release{}
	for _, l := range lives {
		m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: l.id})
	}
	w.Do(m)
	for i, l := range lives {
		require.NoError(w.t, m.Results[i].Err)
		delete(w.lives, l.id)
	}
	w.check()
}

// discard releases a sequence without storing anything.
func (w *world) discard(l *life) {
	w.t.Helper()
	m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: l.id, Discard: true}}}
	w.Do(m)
	require.NoError(w.t, m.Results[0].Err)
	delete(w.lives, l.id)
	w.check()
}

func (w *world) lookup(p messages.Prefix) messages.Found {
	w.t.Helper()
	before := w.picture()
	m := &messages.Lookup{Prefix: p}
	w.do(m)
	require.NoError(w.t, m.Err)
	require.Equal(w.t, before, w.picture(), "a lookup changed something")
	return m.Found
}

func (w *world) tryPin(tokens []messages.Token) (messages.Pinned, error) {
	w.t.Helper()
	before := w.picture()
	m := &messages.PinPrefix{Prefix: messages.Prefix{Tokens: tokens}}
	w.do(m)
	if m.Err != nil {
		require.Equal(w.t, before, w.picture(), "a refused pin changed something: %v", m.Err)
	}
	return m.Pinned, m.Err
}

func (w *world) pin(tokens []messages.Token) messages.Pinned {
	w.t.Helper()
	pinned, err := w.tryPin(tokens)
	require.NoError(w.t, err)
	return pinned
}

func (w *world) unpin(pin messages.PinID) {
	w.t.Helper()
	m := &messages.UnpinPrefix{Pin: pin}
	w.do(m)
	require.NoError(w.t, m.Err)
}

func (w *world) prefetch(tokens []messages.Token) (int, error) {
	w.t.Helper()
	m := &messages.Prefetch{Prefix: messages.Prefix{Tokens: tokens}}
	w.do(m)
	return m.OnboardedPages, m.Err
}

// advance moves time and lets the timers act.
func (w *world) advance(d time.Duration) {
	w.now += d
	w.stats()
	w.check()
}
