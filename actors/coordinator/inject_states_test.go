package coordinator_test

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Requests about sequences of a model with recurrent layers that are broken, for
// TestAFailureOverEachMessage.

// recurrent is a world with few states: most requests evict some.
var recurrent = setup{states: true, pages: []windows.PageCounts{{Primary: 12, Secondary: 12},
	{Primary: 4, Secondary: 2}}}

// running admits and computes prompts, and stores some before.
func running(prompts ...[]messages.Token) func(*world) []*hostSequence {
	return func(w *world) (sequences []*hostSequence) {
		hosted(w)
		for _, tokens := range prompts {
			sequences = append(sequences, w.start(tokens))
		}
		return sequences
	}
}

func stateScenarios() []scenario {
	return []scenario{
		{"admission of states", recurrent, hosted, func(*world, []*hostSequence) any {
			return &messages.Admit{Requests: []messages.AdmitRequest{request(run(0, 13)),
				request(append(run(200, 12), 900)), request(run(500, 3))}}
		}, applyAdmit},
		{"commit of checkpoints", recurrent, func(w *world) []*hostSequence {
			hosted(w)
			_, a := w.admit(run(300, 9))
			_, b := w.admit(run(400, 14))
			return []*hostSequence{a, b}
		}, func(w *world, sequences []*hostSequence) any {
			m := &messages.Commit{}
			for _, l := range sequences {
				w.write(l, 0, l.reach())
				m.Steps = append(m.Steps, messages.CommitStep{Sequence: l.id, Computed: l.reach()})
			}
			return m
		}, settleCommit},
		{"release of working pages", recurrent, running(run(300, 9), run(400, 6)),
			func(_ *world, sequences []*hostSequence) any {
				m := &messages.Release{}
				for _, l := range sequences {
					m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: l.id})
				}
				return m
			}, settleRelease},
		{"fork of states", recurrent, running(run(300, 9)), func(_ *world,
			sequences []*hostSequence) any {
			return &messages.Fork{Steps: []messages.ForkStep{{Sequence: sequences[0].id, Count: 2}}}
		}, settleFork},
		{"prefetch of a state", recurrent, running(run(300, 9), run(400, 9)),
			func(*world, []*hostSequence) any {
				return &messages.Prefetch{Prefix: messages.Prefix{Tokens: run(0, 14)}}
			}, func(*world, []*hostSequence, any) {}},
	}
}
