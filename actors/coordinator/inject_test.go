package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	gotesting "testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// An actor fails before, or after, each of the messages of each request, once in the
// middle of a change and once not; and the coordinator itself fails on the way to
// each. Whatever happens, the request is answered or aborted, all cores agree, every byte is
// right, and what comes next is served.

// errBroken is the panic of a coordinator that is made to fail.
var errBroken = errors.New("the coordinator fails here")

// injection is a failure over one message of a request, and perhaps another one later.
type injection struct {
	*world
	at      int        // the message, from 0
	after   bool       // it is served, another actor fails, and its answer is lost
	dirty   bool       // the actor was in the middle of a change
	own     bool       // the coordinator fails, not the actor
	then    *injection // the next failure: over which message, and how
	stage   string     // what was under way then: a transaction or a recovery
	seen    int        // messages so far
	request any
	replied bool
	aborted bool
}

// due is the failure over the message that is being sent; nil if there is none.
func (n *injection) due() *injection {
	for f := n; f != nil; f = f.then {
		if n.seen-1 == f.at {
			return f
		}
	}
	return nil
}

// serve serves a request and makes an actor fail over it; false if the request has
// fewer messages.
func (n *injection) serve(request any) bool {
	n.request = request
	answered, aborted, after := n.Answered, n.Aborted, n.After
	_, checks := request.(*inspect.Check)
	n.Before = func(to string, message any) bool {
		if isAudit(message) && !checks {
			return true // of a build that checks by itself
		}
		n.seen++
		f := n.due()
		if f == nil {
			return true
		}
		f.stage, _, _ = strings.Cut(stageOf(n.Engine), ":")
		if f.own {
			panic(errBroken)
		}
		if !f.after {
			n.Fail(coordinator.Failure{Actor: to, Dirty: f.dirty, Cause: errBroken})
		}
		return f.after
	}
	n.After = func(to string, message any) {
		if after != nil {
			after(to, message)
		}
		if isAudit(message) && !checks {
			return
		}
		f := n.due()
		if f == nil || !f.after {
			return
		}
		// The one that has served it has answered. Another one fails, and the answer
		// belongs to an epoch that is over when it comes.
		other := "tree"
		if to == "tree" {
			other = "offloader"
		}
		n.Fail(coordinator.Failure{Actor: other, Dirty: f.dirty, Cause: errBroken})
	}
	n.Answered = func(r any) {
		n.replied = n.replied || r == request
		if answered != nil {
			answered(r)
		}
	}
	n.Aborted = func(r any, err error) {
		n.aborted = n.aborted || r == request
		require.ErrorIs(n.t, err, errBroken)
		if aborted != nil {
			aborted(r, err)
		}
	}
	for broken := n.breaks(func() { n.Do(request) }); broken; {
		broken = n.breaks(n.Recover)
	}
	n.Before, n.After = nil, nil
	require.EqualValues(n.t, n.happened(), n.stats().Restarts)
	return n.seen > n.at
}

// happened counts the failures.
func (n *injection) happened() (failures int) {
	for f := n; f != nil; f = f.then {
		if n.seen > f.at {
			failures++
		}
	}
	return failures
}

// breaks calls the coordinator, and tells whether it failed over that.
func (n *injection) breaks(call func()) (broken bool) {
	defer func() {
		if r := recover(); r != nil {
			require.Equal(n.t, errBroken, r)
			n.Fail(coordinator.Failure{Actor: "coordinator", Dirty: true, Cause: errBroken})
			broken = true
		}
	}()
	call()
	return false
}

// scenario is a request that is broken, and what was before it.
type scenario struct {
	name  string
	setup setup
	// before makes the state; request gives the request, and apply brings what the
	// host knows up to date with an answer.
	before  func(*world) []*hostSequence
	request func(*world, []*hostSequence) any
	apply   func(*world, []*hostSequence, any)
}

var roomy = setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 12, Secondary: 12},
	{Primary: 12, Secondary: 12}}}

// stepped brings the host up to date with the results of steps.
func stepped(
	w *world, sequences []*hostSequence, results []messages.StepResult,
	change func(*hostSequence, int),
) {
	for i, l := range sequences {
		if results[i].Err == nil {
			change(l, i)
		}
	}
}

func settleCommit(w *world, sequences []*hostSequence, request any) {
	m := request.(*messages.Commit)
	stepped(w, sequences, m.Results, func(l *hostSequence, i int) { l.computed = m.Steps[i].Computed })
}

func applyAppend(w *world, sequences []*hostSequence, request any) {
	m := request.(*messages.Append)
	stepped(w, sequences, m.Results, func(l *hostSequence, i int) {
		if len(l.beams) > 1 {
			w.extendBeams(l, m.Steps[i].Beams)
			return
		}
		w.extend(l, m.Steps[i].Tokens)
	})
}

func settleRelease(w *world, sequences []*hostSequence, request any) {
	for _, l := range sequences {
		delete(w.running, l.id)
	}
}

func applyAdmit(w *world, _ []*hostSequence, request any) {
	m := request.(*messages.Admit)
	for i := range m.Requests {
		if m.Results[i].Err == nil {
			w.started(&m.Requests[i], &m.Results[i])
		}
	}
}

func settleFork(w *world, sequences []*hostSequence, request any) {
	for _, id := range request.(*messages.Fork).Results[0].Forks {
		f := *sequences[0]
		f.id = id
		w.running[id] = &f
	}
}

// hosted stores three prompts, of which the first ends up in host memory.
func hosted(w *world) []*hostSequence {
	w.store(run(0, 14))
	w.store(run(100, 30))
	w.store(run(200, 16))
	return nil
}

func scenarios() []scenario {
	return slices.Concat(admissionScenarios(), encoderScenarios(), stateScenarios(), stepScenarios(),
		rewindScenarios(), storedScenarios())
}

func admissionScenarios() []scenario {
	admit := func(requests ...messages.AdmitRequest) func(*world, []*hostSequence) any {
		return func(*world, []*hostSequence) any { return &messages.Admit{Requests: requests} }
	}
	return []scenario{
		{"cold admission", roomy, func(*world) []*hostSequence { return nil }, admit(request(run(0, 10))),
			applyAdmit},
		{"admission of a batch that onboards and copies", roomy, hosted,
			admit(request(run(0, 13)), request(append(run(0, 10), 900)), request(append(run(200, 6), 901))),
			applyAdmit},
		{"admission in chunks with beams", roomy, hosted,
			admit(messages.AdmitRequest{Tokens: run(0, 26), ChunkTokens: 8, BeamWidth: 2},
				messages.AdmitRequest{Tokens: run(200, 9), BeamWidth: 2}), applyAdmit},
		{"admission that is refused", roomy, hosted, admit(request(run(0, 9)), request(run(300, 60))),
			applyAdmit},
		{"admission with items", roomy, hosted, admit(messages.AdmitRequest{
			Tokens: run(0, 9), Multimodal: []messages.MultimodalItem{{Start: 2, Length: 3}},
		}, messages.AdmitRequest{Tokens: run(300, 80),
			Multimodal: []messages.MultimodalItem{{Start: 2, Length: 3}}}), applyAdmit},
	}
}

// encoding is a world of an encoder–decoder model.
var encoding = setup{encoder: true, pages: []windows.PageCounts{{Primary: 12, Secondary: 12},
	{Primary: 8, Secondary: 8}}}

// asked is a request with an encoder's input.
func asked(input, tokens []messages.Token) messages.AdmitRequest {
	return messages.AdmitRequest{Encoder: input, Tokens: tokens}
}

// inputsHosted stores three inputs with a prompt each; the first is in host memory.
func inputsHosted(w *world) []*hostSequence {
	for _, r := range []messages.AdmitRequest{asked(run(900, 14), run(0, 9)),
		asked(run(930, 18), run(100, 30)), asked(run(960, 10), run(200, 12))} {
		_, l := w.admitAs(r)
		w.prefill(l)
		w.release(l)
	}
	return nil
}

func encoderScenarios() []scenario {
	return []scenario{
		{"admission with inputs", encoding, inputsHosted, func(*world, []*hostSequence) any {
			return &messages.Admit{Requests: []messages.AdmitRequest{
				asked(run(900, 14), run(0, 12)), asked(run(900, 14), run(50, 6)),
				asked(run(990, 60), run(0, 4)),
			}}
		}, applyAdmit},
		{"first commit of an input", encoding, func(w *world) []*hostSequence {
			_, a := w.admitAs(asked(run(900, 14), run(0, 9)))
			_, b := w.admitAs(asked(run(930, 5), run(0, 9)))
			return []*hostSequence{a, b}
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Commit{}
			for _, l := range sequences {
				w.write(l, 0, 8)
				m.Steps = append(m.Steps, messages.CommitStep{Sequence: l.id, Computed: 8})
			}
			return m
		}, settleCommit},
		{"release with an input", encoding, func(w *world) []*hostSequence {
			_, l := w.admitAs(asked(run(900, 14), run(0, 9)))
			w.prefill(l)
			return append(w.fork(l, 1), l)
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Release{}
			for _, l := range sequences {
				m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: l.id})
			}
			return m
		}, settleRelease},
		{"prefetch of an input", encoding, inputsHosted, func(*world, []*hostSequence) any {
			return &messages.Prefetch{Prefix: messages.Prefix{Encoder: run(900, 14)}}
		}, func(*world, []*hostSequence, any) {}},
	}
}

func stepScenarios() []scenario {
	return []scenario{
		{"commit", roomy, func(w *world) []*hostSequence {
			_, a := w.admitAs(messages.AdmitRequest{Tokens: run(0, 26), ChunkTokens: 8})
			_, b := w.admit(run(100, 9))
			return []*hostSequence{a, b}
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Commit{}
			for _, l := range sequences {
				w.write(l, l.computed, l.reach())
				m.Steps = append(m.Steps, messages.CommitStep{Sequence: l.id, Computed: l.reach()})
			}
			return m
		}, settleCommit},
		{"commit of forks", roomy, func(w *world) []*hostSequence {
			l := w.start(run(0, 6))
			w.Do(&messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Tokens: run(50, 3)}}})
			w.extend(l, run(50, 3))
			w.write(l, 6, 8) // not committed yet
			return append(w.fork(l, 1), l)
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Commit{}
			for _, l := range sequences {
				m.Steps = append(m.Steps, messages.CommitStep{Sequence: l.id, Computed: 8})
			}
			return m
		}, settleCommit},
		{"append", roomy, func(w *world) []*hostSequence {
			hosted(w)
			l := w.start(run(300, 7))
			return append(w.fork(l, 1), l, w.start(run(400, 8)))
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Append{}
			for _, l := range sequences {
				m.Steps = append(m.Steps, messages.AppendStep{Sequence: l.id, Tokens: run(50, 2)})
			}
			return m
		}, applyAppend},
		{"append of beams", roomy, func(w *world) []*hostSequence {
			_, l := w.admitAs(messages.AdmitRequest{Tokens: run(0, 7), BeamWidth: 2})
			w.prefill(l)
			return []*hostSequence{l}
		}, func(w *world, sequences []*hostSequence) any {
			return &messages.Append{Steps: []messages.AppendStep{{Sequence: sequences[0].id,
				Beams: []messages.BeamStep{{Parent: 1, Token: 5}, {Parent: 1, Token: 6}}}}}
		}, applyAppend},
		{"release of forks", roomy, func(w *world) []*hostSequence {
			l := w.start(run(0, 6))
			return append(w.fork(l, 2), l)
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Release{}
			for _, l := range sequences {
				m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: l.id})
			}
			return m
		}, settleRelease},
	}
}

func rewindScenarios() []scenario {
	return []scenario{
		{"rewind", roomy, func(w *world) []*hostSequence {
			l := w.start(run(0, 7))
			w.append(l, 50, 51, 52, 53)
			return []*hostSequence{l}
		}, func(w *world, sequences []*hostSequence) any {
			return &messages.Rewind{Steps: []messages.RewindStep{{Sequence: sequences[0].id, Tokens: 3}}}
		}, func(w *world, sequences []*hostSequence, request any) {
			stepped(w, sequences, request.(*messages.Rewind).Results, func(l *hostSequence, _ int) {
				l.beams[0] = l.beams[0][:l.length()-3]
				l.tokens = l.tokens[:l.length()]
				l.computed = min(l.computed, l.length())
			})
		}},
		{"fork", roomy, func(w *world) []*hostSequence { return []*hostSequence{w.start(run(0, 7))} },
			func(w *world, sequences []*hostSequence) any {
				return &messages.Fork{Steps: []messages.ForkStep{{Sequence: sequences[0].id, Count: 2}}}
			},
			settleFork},
	}
}

func storedScenarios() []scenario {
	nothing := func(*world, []*hostSequence, any) {}
	return []scenario{
		{"lookup", roomy, hosted, func(*world, []*hostSequence) any {
			return &messages.Lookup{Prefix: messages.Prefix{Tokens: run(0, 12)}}
		}, nothing},
		{"prefetch", roomy, hosted, func(*world, []*hostSequence) any {
			return &messages.Prefetch{Prefix: messages.Prefix{Tokens: run(0, 12)}}
		}, nothing},
		{"pin", roomy, hosted, func(*world, []*hostSequence) any {
			return &messages.PinPrefix{Prefix: messages.Prefix{Tokens: run(0, 12)}}
		}, nothing},
		{"unpin", roomy, func(w *world) []*hostSequence { hosted(w); w.pin(run(0, 12)); return nil },
			func(*world, []*hostSequence) any {
				return &messages.UnpinPrefix{Pin: 1}
			}, nothing},
		{"invalidate", roomy, hosted, func(*world, []*hostSequence) any {
			return &messages.Invalidate{Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: run(0,
				6)}}}
		}, nothing},
		{"reset", roomy, hosted, func(*world, []*hostSequence) any { return &messages.Reset{} }, nothing},
		{"rebalance", roomy, func(w *world) []*hostSequence {
			hosted(w)
			return []*hostSequence{w.start(run(300, 26))}
		}, func(*world, []*hostSequence) any {
			return &messages.Rebalance{Fractions: map[string]float64{"w8h1": 0.3, "wfullh1": 0.7}}
		}, nothing},
		{"contents", roomy, hosted, func(*world, []*hostSequence) any { return &protocol.ReadContents{} },
			nothing},
		{"overview", roomy, hosted, func(*world, []*hostSequence) any {
			return &inspect.ReadOverview{Limits: inspect.OverviewLimits{Pages: 5, Nodes: 5}}
		}, nothing},
		{"check", roomy, hosted, func(*world, []*hostSequence) any { return &inspect.Check{} }, nothing},
	}
}

func TestAFailureOverEachMessage(t *gotesting.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *gotesting.T) {
			for kind, n := range map[string]injection{
				"before": {}, "after": {after: true}, "dirty before": {dirty: true},
				"dirty after": {after: true, dirty: true}, "coordinator": {own: true},
			} {
				if gotesting.Short() && kind != "dirty after" && kind != "coordinator" {
					continue // the scripts have all kinds for most of these requests
				}
				for at := 0; ; at++ {
					n.at = at
					if !s.inject(t, fmt.Sprintf("%s message %d", kind, at), n) {
						require.Positive(t, at, "there are messages")
						break
					}
				}
			}
		})
	}
}

// inject runs the scenario in a world of its own; false if the request has fewer
// messages.
func (s *scenario) inject(t *gotesting.T, name string, n injection) bool {
	w := newWorld(t, s.setup)
	w.quiet = true
	w.unchecked = n.at > 0 // the first world has been checked
	sequences := s.before(w)
	w.unchecked = false
	n.world = w
	request := s.request(w, sequences)
	if !n.serve(request) {
		return false
	}
	require.NotEqual(t, n.replied, n.aborted, "%s: answered once", name)
	if n.aborted { // the host repeats it
		w.Answered, w.Aborted = nil, nil
		w.Do(request)
	}
	s.apply(w, sequences, request)
	w.mustGoOn(name)
	return true
}

// mustGoOn checks an engine after a failure: every sequence is whole or lost, prompts can
// be computed to their ends, all sequences can be released, and another one is served.
func (w *world) mustGoOn(name string) {
	w.releaseAllLost()
	w.check()
	require.Equal(w.t, len(w.running), w.stats().Sequences, "%s\n%s", name, w.Engine)
	for _, l := range w.running { // the host writes to all pages of the prompts that it has begun
		w.prefill(l)
	}
	w.unchecked = true
	for len(w.running) > 0 { // what waited for their pages is admitted then
		for _, l := range w.running {
			w.release(l)
		}
	}
	r := messages.AdmitRequest{Tokens: run(700, 10)}
	if w.selfPools() < len(w.shapes) {
		r.Encoder = run(5000, 6)
	}
	_, l := w.admitAs(r)
	w.prefill(l)
	w.release(l)
	w.unchecked = false
	w.do(&messages.Reset{})
	require.Zero(w.t, w.Cores.Tree.Symbols(), "%s: no sequence runs and nothing is stored", name)
}
