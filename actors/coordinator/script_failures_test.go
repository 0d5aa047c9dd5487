package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	gotesting "testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// The command failures takes a request as its input and serves it many times: once for
// each message that the request takes and each way in which an actor can fail over it.
// Each time begins with a new world in which all commands since new are served first.
// For each message it prints the stage, the receiver, and what the request answers then.
//
//	clean        the receiver fails before it has done anything
//	dirty        it fails in the middle of a change
//	late         it serves the message, and another actor fails before the answer comes
//	late dirty   the same, and that one fails in the middle of a change
//	coordinator  the coordinator fails as it sends the message
//
// With failures twice a second actor fails after each of these, over each message up to the
// end of the recovery: the receiver, cleanly or in the middle of a change, or the coordinator.
// For each first failure all answers are printed that came of that.
//
// "as without" is the answer that the request gives when nothing fails. Behind the
// answer are the sequences that are lost. A request that was aborted is repeated, and what it
// answers then is printed as well. After each failure everything is checked, all sequences are
// released, and another one is served.

// ways are the ways to fail over a message.
var ways = []struct {
	name string
	injection
}{
	{name: "clean"},
	{name: "dirty", injection: injection{dirty: true}},
	{name: "late", injection: injection{after: true}},
	{name: "late dirty", injection: injection{after: true, dirty: true}},
	{name: "coordinator", injection: injection{own: true}},
}

// sent is a message of a request that nothing disturbs.
type sent struct{ stage, to string }

func (s *script) failures(d *datadriven.TestData) string {
	cmd, args, err := datadriven.ParseLine(strings.TrimSpace(d.Input))
	require.NoError(s.t, err)
	request := &datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args}
	list, withoutFailures := s.withoutFailures(request)
	var out strings.Builder
	fmt.Fprintf(&out, "without a failure: %s\n", withoutFailures)
	for at, m := range list {
		fmt.Fprintf(&out, "%s → %s\n", m.stage, m.to)
		// Ways that end alike are one line.
		names, order := map[string][]string{}, []string{}
		for _, way := range ways {
			way.at = at
			ends := []string{s.disturbed(request, way.injection)}
			if d.HasArg("twice") {
				ends = s.disturbedTwice(request, way.injection)
			}
			for i := range ends {
				if before, ok := strings.CutSuffix(ends[i], withoutFailures); ok {
					ends[i] = before + "as without"
				}
			}
			end := strings.Join(ends, " | ")
			if names[end] == nil {
				order = append(order, end)
			}
			names[end] = append(names[end], way.name)
		}
		for _, end := range order {
			fmt.Fprintf(&out, "  %s: %s\n", strings.Join(names[end], ", "), end)
		}
	}
	return out.String()
}

// disturbedTwice serves a request with a failure over one of its messages, and with another
// one over each message up to the end of the recovery. It returns what the request answers then.
func (s *script) disturbedTwice(request *datadriven.TestData, n injection) (ends []string) {
	for _, second := range ways {
		if second.after {
			continue
		}
		recovers := false
		for second.at = n.at + 1; ; second.at++ {
			then := second.injection
			n.then = &then
			end := s.disturbed(request, n)
			// Before the recovery are messages that were sent with the first one.
			if recovers && then.stage != "recovery" {
				break
			}
			recovers = then.stage == "recovery"
			if !slices.Contains(ends, end) {
				ends = append(ends, end)
			}
		}
	}
	return ends
}

// repeat makes a new world and serves everything that this script has served.
func (s *script) repeat() *script {
	r := newScript(s.t)
	for i := range s.history {
		d := s.history[i]
		r.run(s.t, &d)
		if d.Cmd == "new" {
			// This script has checked and printed what it served itself.
			r.quiet, r.unchecked = true, true
		}
	}
	r.out.Reset()
	return r
}

// withoutFailures serves a request without a failure, and lists its messages.
func (s *script) withoutFailures(request *datadriven.TestData) (list []sent, answer string) {
	r := s.repeat()
	before := r.Before
	r.serve = func(request any) {
		r.Before = func(to string, message any) bool {
			if !isAudit(message) {
				list = append(list, sent{stageOf(r.Engine), to})
			}
			return before(to, message)
		}
		r.doOrPanic(request)
		r.Before = before
	}
	r.request(request)
	return list, r.outcome()
}

// disturbed serves a request with a failure over one of its messages, and returns what
// it answers.
func (s *script) disturbed(request *datadriven.TestData, n injection) string {
	r := s.repeat()
	n.world = r.world
	r.serve = func(request any) { require.True(s.t, n.serve(request)) }
	r.request(request)
	waits := len(r.waiting) > 0 && !n.aborted // for pages: it will be answered when there are some
	require.True(s.t, n.replied != n.aborted || waits && !n.replied, "answered once")
	end := r.outcome()
	r.world.t = failing{s.t, fmt.Sprintf("message %d, dirty %v, after %v, own %v", n.at, n.dirty,
		n.after, n.own)}
	if n.aborted { // the host repeats it, but no kernel that has run
		r.out.Reset()
		r.kernelsRan = request.Cmd != "import" // which writes pages that it has just got
		r.request(request)
		r.kernelsRan = false
		end += "; again: " + r.outcome()
	}
	r.unchecked = false
	r.endPins()
	r.mustGoOn(end)
	return end
}

// endPins ends all pins when other blocks have been stored, which have the numbers of those that
// were forgotten.
func (s *script) endPins() {
	if len(s.pins) == 0 {
		return
	}
	for i := range 8 {
		_, l := s.admitAs(messages.AdmitRequest{Tokens: run(900+10*i, 4)})
		s.prefill(l)
		s.world.release(l)
	}
	for _, pin := range s.pins {
		s.do(&messages.UnpinPrefix{Pin: pin})
	}
}

// outcome is what has been printed, on one line, and the names of what is lost.
func (s *script) outcome() string {
	end := strings.ReplaceAll(strings.TrimSpace(s.out.String()), "\n", "; ")
	for _, name := range s.lostNames() {
		end += ", " + name + " is lost"
	}
	return end
}

// lostNames are the names of the sequences that are lost, without releasing them.
func (s *script) lostNames() (names []string) {
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	defer func() { s.Before, s.After = before, after }()
	for name, id := range s.names {
		if s.running[id] == nil {
			continue
		}
		r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
		s.world.Do(r)
		if r.Results[0].Err != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// failing is a test that says what it was doing.
type failing struct {
	*gotesting.T
	doing string
}

func (f failing) Errorf(format string, args ...any) {
	f.T.Helper()
	f.T.Errorf(f.doing+": "+format, args...)
}
