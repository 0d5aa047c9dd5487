package cross_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/cross"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sides are two sides that do as they are told: what a request gets is decided
// by the test, also what real sides do only when something fails.
type sides struct {
	*cross.Join
	log     []string
	next    messages.SequenceID
	fail    map[string]error // by side and type: could not be served, once
	refuse  map[string]error // by side and type: refused
	last    map[string]any   // by side and type
	held    bool             // answers wait until the test gives them
	aborted error
	gone    bool // nobody waits for an answer
	stale   int  // snapshots that come too late

	failAgain map[string]int // how often what fails does so once more
	panics    string         // where the port does, once
	short     bool           // results are missing, over which a stage breaks off
}

func newSides() *sides {
	s := &sides{fail: map[string]error{}, refuse: map[string]error{}, last: map[string]any{}, failAgain: map[string]int{}}
	s.Join = cross.New(coordinator.Config{TokensPerBlock: tpb, MaxSeqLen: full, EncoderMaxLen: long}, messages.PoolInfo{ID: 1}, s)
	return s
}

func (s *sides) Decoder(request any) { s.serve("decoder", request) }
func (s *sides) Encoder(request any) { s.serve("encoder", request) }

func (s *sides) Begin(any) bool {
	s.panicAt("begin")
	return !s.gone
}

// panicAt is the port's panic, before it has done anything.
func (s *sides) panicAt(point string) {
	if s.panics == point {
		s.panics = ""
		panic("join: " + point)
	}
}

func (s *sides) Reply(request, _ any) {
	s.panicAt("reply")
	s.log = append(s.log, fmt.Sprintf("reply %T", request))
}

func (s *sides) Abort(request, _ any, cause error) {
	s.log, s.aborted = append(s.log, fmt.Sprintf("abort %T", request)), cause
}

func (s *sides) serve(side string, request any) {
	s.panicAt(side)
	name := side + " " + recordName(request)
	s.log = append(s.log, name)
	s.last[name] = request
	if err := s.fail[name]; err != nil {
		if s.failAgain[name]--; s.failAgain[name] < 0 {
			delete(s.fail, name)
		}
		s.Answered(err)
		return
	}
	s.answer(request, s.refuse[name])
	if !s.held {
		s.Answered(nil)
	}
}

// answer fills a record in.
func (s *sides) answer(request any, err error) {
	switch r := request.(type) {
	case *protocol.DryRunAdmit:
		r.Results = make([]messages.Admitted, len(r.Requests))
	case *messages.Admit:
		for range r.Requests {
			s.next++
			r.Results = append(r.Results, messages.Admitted{Sequence: s.next, Tables: messages.Tables{{{0}}}, Err: err})
		}
	case *messages.Commit:
		if s.short {
			return
		}
		r.Results = make([]messages.StepResult, len(r.Steps))
		for i := range r.Steps {
			r.Results[i] = messages.StepResult{Sequence: r.Steps[i].Sequence, Err: err}
		}
	case *messages.Release:
		if s.short {
			return
		}
		r.Results = make([]messages.StepResult, len(r.Steps))
		for i := range r.Steps {
			r.Results[i] = messages.StepResult{Sequence: r.Steps[i].Sequence, Err: err}
		}
	case *protocol.JoinSnapshot:
		r.Stale = s.stale > 0
		s.stale--
	case *messages.ReadTables:
		for _, id := range r.Sequences {
			r.Results = append(r.Results, messages.TablesResult{Sequence: id, Err: err})
		}
	case *messages.Fork:
		for _, step := range r.Steps {
			result := messages.ForkResult{Sequence: step.Sequence, Err: err}
			for range step.Count {
				s.next++
				result.Forks = append(result.Forks, s.next)
			}
			r.Results = append(r.Results, result)
		}
	}
}

// take gives the log and empties it.
func (s *sides) take() []string {
	log := s.log
	s.log = nil
	return log
}

func (s *sides) admitOne() messages.Admitted {
	m := &messages.Admit{Requests: []messages.AdmitRequest{ask(run(100, 4), run(0, 4))}}
	s.Submit(m, nil)
	return m.Results[0]
}

var errSide = errors.New("an actor failed")

func TestOrderOfAnAdmission(t *testing.T) {
	s := newSides()
	a := s.admitOne()
	require.NoError(t, a.Err)
	assert.Equal(t, []string{"encoder DryRunAdmit", "decoder Admit", "encoder Admit", "reply *messages.Admit"}, s.take())
	asked := s.last["decoder Admit"].(*messages.Admit).Requests[0]
	assert.Empty(t, asked.Encoder)
	assert.Equal(t, cross.Key(run(100, 4), nil), asked.Namespace.Encoder)
	assert.Equal(t, "1.0 cross 2.0 of 4 tokens\n", s.String())

	// The first commit goes to both sides, the next one to the decoder's alone.
	m := &messages.Commit{Steps: []messages.CommitStep{{Sequence: a.Sequence, Computed: 4, After: messages.Ticket{Stream: 1, Seq: 7}}}}
	s.Submit(m, nil)
	assert.Equal(t, []string{"decoder Commit", "encoder Commit", "reply *messages.Commit"}, s.take())
	assert.Equal(t, messages.Ticket{Stream: 1, Seq: 7}, s.last["encoder Commit"].(*messages.Commit).Steps[0].After)
	assert.Contains(t, s.String(), "computed")
	s.Submit(m, nil)
	assert.Equal(t, []string{"decoder Commit", "reply *messages.Commit"}, s.take())
	s.Submit(&messages.Append{Steps: []messages.AppendStep{{Sequence: a.Sequence, Computed: 5}}}, nil)
	assert.Equal(t, []string{"decoder Append", "reply *messages.Append"}, s.take())
}

// When the cross side fails after its rehearsal, the decoder's side lets go.
func TestAdmissionsThatFailHalfway(t *testing.T) {
	for name, spoil := range map[string]func(*sides){
		"refused":    func(s *sides) { s.refuse["encoder Admit"] = messages.ErrInternal },
		"not served": func(s *sides) { s.fail["encoder Admit"] = messages.ErrInternal },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides()
			spoil(s)
			a := s.admitOne()
			end := "reply *messages.Admit"
			if name == "not served" {
				require.ErrorIs(t, s.aborted, messages.ErrInternal)
				end = "abort *messages.Admit"
			} else {
				require.ErrorIs(t, a.Err, messages.ErrInternal)
			}
			assert.Equal(t, messages.Admitted{Err: a.Err}, a)
			assert.Equal(t, []string{"encoder DryRunAdmit", "decoder Admit", "encoder Admit", "decoder Release", end}, s.take())
			assert.Equal(t, []messages.ReleaseStep{{Sequence: 1, Discard: true}}, s.last["decoder Release"].(*messages.Release).Steps)
			assert.Empty(t, s.String())
		})
	}
	for _, stage := range []string{"encoder DryRunAdmit", "decoder Admit"} {
		s := newSides()
		s.fail[stage] = errSide
		s.Submit(&messages.Admit{Requests: []messages.AdmitRequest{ask(run(100, 4), run(0, 4))}}, nil)
		assert.Equal(t, errSide, s.aborted)
		assert.Empty(t, s.String())
	}
}

func TestForksThatFailHalfway(t *testing.T) {
	for name, spoil := range map[string]func(*sides){
		"refused":    func(s *sides) { s.refuse["encoder Fork"] = messages.ErrSequenceLost },
		"not served": func(s *sides) { s.fail["encoder Fork"], s.failAgain["encoder Fork"] = errSide, 99 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides()
			a := s.admitOne()
			before := s.String()
			spoil(s)
			m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: a.Sequence, Count: 2}}}
			s.Submit(m, nil)
			assert.Equal(t, name == "refused", m.Results[0].Err != nil)
			assert.Equal(t, name == "not served", s.aborted != nil, "who was aborted")
			assert.Empty(t, m.Results[0].Forks)
			assert.Len(t, s.last["decoder Release"].(*messages.Release).Steps, 2)
			assert.Equal(t, before, s.String())
			lost, asked := s.last["decoder LoseSequences"].(*protocol.LoseSequences)
			if asked {
				assert.Equal(t, []messages.SequenceID{a.Sequence}, lost.Sequences)
			}
			assert.Equal(t, name == "refused", asked, "a sequence whose cross side is lost is lost")
		})
	}
}

// A sequence whose cross side is lost is lost on the decoder's as well, whichever
// call hears of it first.
func TestALostCrossSide(t *testing.T) {
	s := newSides()
	a := s.admitOne()
	s.take()
	s.refuse["encoder Commit"] = messages.ErrSequenceLost
	m := &messages.Commit{Steps: []messages.CommitStep{{Sequence: a.Sequence, Computed: 4}}}
	s.Submit(m, nil)
	require.ErrorIs(t, m.Results[0].Err, messages.ErrSequenceLost)
	assert.ErrorContains(t, m.Results[0].Err, a.Sequence.String(), "the name that the host knows")
	assert.Equal(t, []string{"decoder Commit", "encoder Commit", "decoder LoseSequences", "reply *messages.Commit"}, s.take())
	assert.Equal(t, []messages.SequenceID{a.Sequence}, s.last["decoder LoseSequences"].(*protocol.LoseSequences).Sequences)

	s.refuse["encoder ReadTables"] = messages.ErrSequenceLost
	tables := &messages.ReadTables{Sequences: []messages.SequenceID{a.Sequence}}
	s.Submit(tables, nil)
	require.ErrorIs(t, tables.Results[0].Err, messages.ErrSequenceLost)
	assert.Contains(t, s.take(), "decoder LoseSequences")

	s.refuse["encoder Release"] = messages.ErrSequenceLost
	r := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: a.Sequence}}}
	s.Submit(r, nil)
	require.ErrorIs(t, r.Results[0].Err, messages.ErrSequenceLost)
	assert.Empty(t, s.String())
}

// What the cross side breaks off is asked for again, but not for ever.
func TestACommitThatTheCrossSideBreaksOff(t *testing.T) {
	for _, failures := range []int{1, 7, 8} {
		s := newSides()
		a := s.admitOne()
		s.take()
		s.fail["encoder Commit"], s.failAgain["encoder Commit"] = errSide, failures-1
		s.Submit(&messages.Commit{Steps: []messages.CommitStep{{Sequence: a.Sequence, Computed: 4}}}, nil)
		want := append([]string{"decoder Commit"}, slices.Repeat([]string{"encoder Commit"}, min(8, failures+1))...)
		if failures == 8 {
			want = append(want, "abort *messages.Commit")
		} else {
			want = append(want, "reply *messages.Commit")
		}
		assert.Equal(t, want, s.take())
	}
}

// What is let go because the other side failed is let go, though its own side
// fails over it, too.
func TestWhatIsTakenBackIsTakenBack(t *testing.T) {
	s := newSides()
	s.fail["encoder Admit"], s.fail["decoder Release"], s.failAgain["decoder Release"] = errSide, errSide, 3
	s.admitOne()
	log := s.take()
	assert.Equal(t, "abort *messages.Admit", log[len(log)-1])
	assert.Empty(t, s.fail, "the release has been served")
	s.fail["encoder Fork"], s.failAgain["encoder Fork"] = messages.ErrFailed, 99
	a := s.admitOne()
	s.take()
	s.Submit(&messages.Fork{Steps: []messages.ForkStep{{Sequence: a.Sequence, Count: 1}}}, nil)
	assert.Equal(t, []string{"decoder Fork", "encoder Fork", "decoder Release", "abort *messages.Fork"}, s.take(), "it will not be served any more")
}

// A sequence that the decoder's side has lost lets go of its cross side too.
func TestReleases(t *testing.T) {
	s := newSides()
	a, b := s.admitOne(), s.admitOne()
	s.take()
	s.refuse["decoder Release"] = messages.ErrBadRequest
	m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: a.Sequence}, {Sequence: 99}}}
	s.Submit(m, nil)
	assert.Equal(t, []string{"decoder Release", "reply *messages.Release"}, s.take())
	s.refuse["decoder Release"] = messages.ErrSequenceLost
	s.Submit(m, nil)
	assert.Equal(t, []string{"decoder Release", "encoder Release", "reply *messages.Release"}, s.take())

	// A release that was broken off is asked for again.
	delete(s.refuse, "decoder Release")
	s.fail["encoder Release"] = errSide
	s.Submit(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: b.Sequence, Discard: true}}}, nil)
	assert.Equal(t, []string{"decoder Release", "encoder Release", "encoder Release", "reply *messages.Release"}, s.take())
	assert.Empty(t, s.String())
	require.NoError(t, s.Join.Check())
}

// Whatever cannot be served on one side is aborted, and the next is served.
func TestAborts(t *testing.T) {
	prefix := messages.Prefix{Encoder: run(0, 4), Tokens: run(0, 4)}
	for _, request := range []any{
		&messages.Commit{}, &messages.Append{}, &messages.Release{}, &messages.Fork{}, &messages.Rewind{}, &messages.ReadTables{},
		&messages.Lookup{Prefix: prefix}, &messages.PinPrefix{Prefix: prefix}, &messages.Prefetch{Prefix: prefix}, &messages.UnpinPrefix{},
		&messages.Invalidate{}, &messages.Reset{}, &messages.Rebalance{}, &messages.ReadStats{}, &messages.ReadContents{},
		&messages.Check{}, &protocol.Close{}, &messages.WriteScales{},
	} {
		s := newSides()
		name := "decoder " + recordName(request)
		s.fail[name] = errSide
		s.Submit(request, nil)
		assert.Equal(t, []string{name, fmt.Sprintf("abort %T", request)}, s.take())
		assert.Equal(t, errSide, s.aborted)
		assert.NoError(t, s.admitOne().Err)
	}
	for _, request := range []any{&messages.Reset{}, &messages.ReadStats{}, &messages.ReadContents{}, &messages.Check{}, &protocol.Close{}} {
		s := newSides()
		s.fail["encoder "+recordName(request)] = errSide
		s.Submit(request, nil)
		assert.Equal(t, errSide, s.aborted)
	}
}

// Events and snapshots ask the cross side first.
func TestEventsOfBothSides(t *testing.T) {
	for _, c := range []struct {
		request any
		first   string
		second  string
	}{
		{&messages.ReadEvents{}, "encoder ReadStats", "decoder ReadEvents"},
		{&messages.ReadSnapshot{}, "encoder ReadKeys", "decoder JoinSnapshot"},
	} {
		for i, name := range []string{c.first, c.second} {
			s := newSides()
			s.fail[name] = errSide
			s.Submit(c.request, nil)
			assert.Equal(t, append([]string{c.first, c.second}[:i+1:i+1], fmt.Sprintf("abort %T", c.request)), s.take())
		}
		s := newSides()
		s.Submit(c.request, nil)
		assert.Equal(t, []string{c.first, c.second, fmt.Sprintf("reply %T", c.request)}, s.take())
	}
	s := newSides()
	s.stale = 2
	s.Submit(&messages.ReadSnapshot{}, nil)
	again := []string{"encoder ReadKeys", "decoder JoinSnapshot"}
	assert.Equal(t, append(slices.Concat(again, again, again), "reply *messages.ReadSnapshot"), s.take(), "until nothing has happened in between")
}

// One request is served at a time; Stop answers the one under way and the rest.
func TestTheLine(t *testing.T) {
	s := newSides()
	s.held = true
	for range 3 {
		s.Submit(&messages.Reset{}, nil)
	}
	assert.Equal(t, []string{"decoder Reset"}, s.take())
	s.Answered(nil)
	s.Answered(nil)
	assert.Equal(t, []string{"encoder Reset", "reply *messages.Reset", "decoder Reset"}, s.take())
	s.Stop(errSide)
	assert.Equal(t, []string{"abort *messages.Reset", "abort *messages.Reset"}, s.take())

	s = newSides()
	s.gone = true
	s.Submit(&messages.Reset{}, nil)
	assert.Empty(t, s.take(), "nobody waits for it")
}

func TestKeys(t *testing.T) {
	item := messages.MultimodalItem{Hash: [32]byte{1}, Start: 0, Length: 1}
	seen := map[string]int{}
	for i, c := range []struct {
		tokens []messages.Token
		items  []messages.MultimodalItem
	}{
		{run(0, 1), nil}, {run(0, 2), nil}, {run(1, 1), nil}, {run(0, 1), []messages.MultimodalItem{item}},
		{make([]messages.Token, 13), nil}, {make([]messages.Token, 25), nil}, {[]messages.Token{messages.MaxToken}, nil},
	} {
		key := cross.Key(c.tokens, c.items)
		_, twice := seen[key]
		assert.False(t, twice, "%d", i)
		seen[key] = i
		assert.Equal(t, key, cross.Key(c.tokens, c.items))
	}
}

// Our own bugs are panics.
func TestASequenceWithoutACrossSide(t *testing.T) {
	s := newSides()
	assert.PanicsWithValue(t, "cross: sequence 5.0 has no cross side", func() {
		s.Submit(&messages.Commit{Steps: []messages.CommitStep{{Sequence: 5, Computed: 1}}}, nil)
	})
	r := newRig(t, setup{pages: pages(4, 4)})
	err := r.Do(context.Background(), struct{}{})
	require.Error(t, err)
	_, err = r.Close(context.Background())
	require.NoError(t, err)
}

// recordName is the name of a request's type without its package.
func recordName(request any) string {
	name := fmt.Sprintf("%T", request)
	return name[strings.LastIndexByte(name, '.')+1:]
}
