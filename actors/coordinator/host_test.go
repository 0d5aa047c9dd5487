package coordinator_test

import (
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// predictions are the parts of a picture that say what the policy forecast expects. A refused
// admission changes them: what it has matched is awaited.
var predictions = regexp.MustCompile(`(?m)^ +piece .*\n?| piece .*$`)

// tryAdmit admits one sequence; a refusal must have changed nothing but predictions.
func (w *world) tryAdmit(r messages.AdmitRequest) (messages.Admitted, *hostSequence, error) {
	w.t.Helper()
	before := ""
	if !w.unchecked {
		before = predictions.ReplaceAllString(w.picture(), "")
	}
	m := &messages.Admit{Requests: []messages.AdmitRequest{r}}
	w.Do(m)
	require.NoError(w.t, m.Err)
	if err := m.Results[0].Err; err != nil {
		require.True(w.t, w.unchecked || before == predictions.ReplaceAllString(w.picture(), ""),
			"a refused admission changed something: %v", err)
		return m.Results[0], nil, err
	}
	l := w.started(&r, &m.Results[0])
	w.check()
	return m.Results[0], l, nil
}

// started is the host's view of an admitted sequence.
func (w *world) started(r *messages.AdmitRequest, a *messages.Admitted) *hostSequence {
	ns := r.Namespace
	if len(r.Encoder) > 0 {
		ns.Encoder = coordinator.EncoderKey(r.Encoder, r.EncoderItems)
	}
	chains := host.Chains(messages.Prefix{Namespace: ns, Tokens: r.Tokens, Multimodal: r.Multimodal})
	l := &hostSequence{id: a.Sequence, ns: ns, tokens: r.Tokens, prompt: len(r.Tokens),
		computed: a.ReusedTokens, chunk: r.ChunkTokens, checkpoints: slices.Clone(a.Checkpoints)}
	if a.Cross != nil {
		l.input = host.Chains(messages.Prefix{Namespace: ns, Tokens: r.Encoder})
		l.reused, l.encoded = a.Cross.ReusedTokens, a.Cross.ReusedTokens == len(r.Encoder)
	}
	for range max(1, r.BeamWidth) {
		l.beams = append(l.beams, append([]host.Chain(nil), chains...))
	}
	w.running[l.id] = l
	return l
}

// admit takes a sequence in and does not compute it.
func (w *world) admit(tokens []messages.Token) (messages.Admitted, *hostSequence) {
	w.t.Helper()
	r := messages.AdmitRequest{Tokens: tokens}
	if w.selfPools() < len(w.shapes) {
		r.Encoder = run(5000, 6)
	}
	return w.admitAs(r)
}

func (w *world) admitAs(r messages.AdmitRequest) (messages.Admitted, *hostSequence) {
	w.t.Helper()
	a, l, err := w.tryAdmit(r)
	require.NoError(w.t, err)
	return a, l
}

// admitBatch takes several in; refused ones are nil.
func (w *world) admitBatch(
	requests ...messages.AdmitRequest,
) ([]messages.Admitted, []*hostSequence) {
	w.t.Helper()
	m := &messages.Admit{Requests: requests}
	w.Do(m)
	require.NoError(w.t, m.Err)
	sequences := make([]*hostSequence, len(requests))
	for i := range requests {
		if m.Results[i].Err == nil {
			sequences[i] = w.started(&requests[i], &m.Results[i])
		}
	}
	w.check()
	return m.Results, sequences
}

// commitTo computes and commits the tokens up to n.
func (w *world) commitTo(l *hostSequence, n int) messages.StepResult {
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
func (w *world) prefill(l *hostSequence) {
	w.t.Helper()
	for l.computed < l.prompt {
		w.commitTo(l, l.reach())
	}
}

// reach is how far the next commit of a prompt may go.
func (l *hostSequence) reach() int {
	to := l.prompt
	if l.chunk > 0 {
		to = min(to, (l.computed+l.chunk)/tpb*tpb)
	}
	for _, position := range l.checkpoints {
		if position > l.computed {
			return min(to, position)
		}
	}
	return to
}

// start admits and computes a prompt.
func (w *world) start(tokens []messages.Token) *hostSequence {
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
func (w *world) tryAppend(
	tokens []messages.Token, sequences ...*hostSequence,
) []messages.StepResult {
	w.t.Helper()
	m := &messages.Append{}
	for _, l := range sequences {
		m.Steps = append(m.Steps, messages.AppendStep{Sequence: l.id, Tokens: tokens})
	}
	w.Do(m)
	require.NoError(w.t, m.Err)
	for i, l := range sequences {
		if m.Results[i].Err == nil {
			w.extend(l, tokens)
		}
	}
	w.releaseLost(m.Results...)
	w.check()
	for i, l := range sequences {
		if m.Results[i].Err == nil {
			w.commitTo(l, l.length()-1)
		}
	}
	return m.Results
}

// releaseLost releases the sequences that the engine calls lost, as their host must.
func (w *world) releaseLost(results ...messages.StepResult) {
	w.t.Helper()
	for i := range results {
		if !errors.Is(results[i].Err, messages.ErrSequenceLost) {
			continue
		}
		m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: results[i].Sequence}}}
		w.Do(m)
		require.ErrorIs(w.t, m.Results[0].Err, messages.ErrSequenceLost)
		delete(w.running, results[i].Sequence)
	}
}

// releaseAllLost releases the sequences that are lost.
func (w *world) releaseAllLost() {
	for id := range w.running {
		r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
		w.Do(r)
		w.releaseLost(messages.StepResult{Sequence: id, Err: r.Results[0].Err})
	}
}

// extend adds tokens to what the host knows.
func (w *world) extend(l *hostSequence, tokens []messages.Token) {
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

func (w *world) append(l *hostSequence, tokens ...messages.Token) messages.StepResult {
	w.t.Helper()
	r := w.tryAppend(tokens, l)[0]
	require.NoError(w.t, r.Err)
	return r
}

// tryBeams is one step of a sequence with beams.
func (w *world) tryBeams(l *hostSequence, steps ...messages.BeamStep) messages.StepResult {
	w.t.Helper()
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Beams: steps}}}
	w.Do(m)
	if m.Results[0].Err != nil {
		w.releaseLost(m.Results...)
		w.check()
		return m.Results[0]
	}
	w.extendBeams(l, steps)
	w.check()
	w.commitTo(l, l.length()-1)
	return m.Results[0]
}

// extendBeams makes the beams what a step has made them.
func (w *world) extendBeams(l *hostSequence, steps []messages.BeamStep) {
	beams := make([][]host.Chain, len(steps))
	for i, s := range steps {
		parent := l.beams[s.Parent]
		beams[i] = append(append([]host.Chain(nil), parent...),
			parent[len(parent)-1].Next(s.Token, messages.Cover{}))
	}
	l.beams = beams
}

func (w *world) fork(l *hostSequence, n int) []*hostSequence {
	w.t.Helper()
	forks, err := w.tryFork(l, n)
	require.NoError(w.t, err)
	return forks
}

// tryFork forks a sequence. With recurrent layers that may be refused.
func (w *world) tryFork(l *hostSequence, n int) ([]*hostSequence, error) {
	w.t.Helper()
	m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: l.id, Count: n}}}
	w.Do(m)
	var forks []*hostSequence
	for _, id := range m.Results[0].Forks {
		f := *l
		f.id = id
		f.beams = [][]host.Chain{append([]host.Chain(nil), l.beams[0]...)}
		w.running[id] = &f
		forks = append(forks, &f)
	}
	w.check()
	return forks, m.Results[0].Err
}

func (w *world) rewind(l *hostSequence, n int) error {
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

func (w *world) release(sequences ...*hostSequence) {
	w.t.Helper()
	m := &messages.Release{}
	for _, l := range sequences {
		m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: l.id})
	}
	w.Do(m)
	for i, l := range sequences {
		require.NoError(w.t, m.Results[i].Err)
		delete(w.running, l.id)
	}
	w.check()
}

// discard releases a sequence without storing anything.
func (w *world) discard(l *hostSequence) {
	w.t.Helper()
	m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: l.id, Discard: true}}}
	w.Do(m)
	require.NoError(w.t, m.Results[0].Err)
	delete(w.running, l.id)
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

// advance moves time; the next request ends what has expired.
func (w *world) advance(d time.Duration) {
	w.now += d
	w.stats()
	w.check()
}
