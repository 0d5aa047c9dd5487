package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	gotesting "testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// TestScripts runs the conversations under testdata/scripts. A command is a request
// of a host; what is printed is the stages that it goes through, each message with
// its answer, and the answer of the request. After each request all cores are
// checked against each other, and the bytes of every page.
//
//	new pages=4 host=8 [windows=(512,8)] [sink=n] [waiting=n] [without=copies|partial|reuse]
//	    [onlyabove=35] [ahead] [encoder] [states] [every=n]
//	    [save=reuse|commit [least=n]]   see script_gate_test.go
//	gate 1                        there is room for what is to be saved in the first pools
//	store 0..12                   a prompt of tokens 0 … 11 is computed and released
//	admit a=0..12 b=0..8+100..104 [chunk=n] [beams=n] [session=s] [salt=s] [input=900..907]
//	    [items] [priority=n [ms=n]]
//	write a=12                    the host computes tokens, and will commit them later
//	commit a=12                   append a=100..102, or a=0:100+1:101 with beams
//	rewind a=2    fork a=b        release a b      discard a        release a=12: it commits, too
//	    [after=n]                 behind commit, append, release: the kernel that may still run
//	    [commits]                 behind append: it commits what was there before, too
//	pin p=0..8    unpin p         prefetch 0..8    lookup 0..8
//	invalidate 0..8, session:s, salt:s             reset
//	rebalance demand, wfullh1=0.5 …, pages=(4,8)
//	import a=0..13 [items]        describe a       see script_handover_test.go
//	fail onboard=1                the next copies of that kind fail: offload, onboard, copy;
//	                              device: the next resize
//	lose tree [dirty] [at=2]      an actor fails before its next message, or the second
//	wait ms=5     draw            quiet            stats
//	failures                      see script_failures_test.go
func TestScripts(t *gotesting.T) {
	scripttest.Walk(t, func(t *gotesting.T) scripttest.Serve { return newScript(t).run })
}

// script is one conversation. Names stand for handles.
type script struct {
	*world
	t     *gotesting.T
	out   trace
	quiet bool // only answers are printed
	names map[string]messages.SequenceID
	pins  map[string]messages.PinID
	lost  []*loss // that are to come, in this order
	stage string  // that was printed last
	// waiting are the admissions that have not been answered, with the names of their
	// sequences.
	waiting map[*messages.Admit][]string
	// history is what has been served since the last new; failures serves it once more.
	history []datadriven.TestData
	serve   func(request any) // in place of Do, once; nil: Do
	current any               // the last request
	aborted bool              // it was not served
	written map[string]int    // tokens that a host has computed and not committed yet
	refuse  int               // resizes that the device will refuse
	gate    gate
}

func newScript(t *gotesting.T) *script {
	return &script{
		t: t, names: map[string]messages.SequenceID{}, pins: map[string]messages.PinID{},
		waiting: map[*messages.Admit][]string{}, written: map[string]int{},
	}
}

// loss is an actor that fails before one of its next messages.
type loss struct {
	failure coordinator.Failure
	after   int // messages that it still serves
}

func (s *script) run(t *gotesting.T, d *datadriven.TestData) string {
	s.out.Reset()
	s.stage = ""
	if d.Cmd == "failures" {
		return s.failures(d)
	}
	s.history = append(s.history, *d)
	switch d.Cmd {
	case "new":
		s.open(d)
	case "draw":
		s.out.WriteString(s.Engine.String())
	case "quiet":
		s.quiet = true
	case "fail":
		for name, lane := range map[string]offloader.Lane{"offload": offloader.Offload,
			"onboard": offloader.Onboard, "copy": offloader.Duplicate} {
			s.memory.failing[lane] += s.number(d, name, 0)
		}
		s.refuse += s.number(d, "device", 0)
	case "lose":
		s.lose(d)
	case "gate":
		s.gate.pages = number(s.t, d.CmdArgs[0].Key)
		s.SaveRoom()
	case "write":
		for _, arg := range d.CmdArgs {
			s.written[arg.Key] = number(s.t, arg.Vals[0])
			s.hostWrites(s.sequence(arg.Key), s.written[arg.Key])
		}
	case "store":
		was := s.quiet
		s.quiet = true
		for _, arg := range d.CmdArgs {
			s.world.store(tokensOf(arg.Key))
		}
		s.quiet = was
		s.out.Reset()
	default:
		s.request(d)
	}
	if d.Cmd != "new" && d.Cmd != "lose" {
		s.checkAll()
	}
	return s.out.String()
}

// checkAll checks everything without printing the messages of it.
func (s *script) checkAll() {
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	defer func() { s.Before, s.After = before, after }()
	for id := range s.running {
		r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
		s.Do(r)
		if r.Results[0].Err != nil { // lost, and its host has not heard of it
			require.NoError(s.t, s.Engine.Check())
			return
		}
	}
	s.check()
}

func (s *script) open(d *datadriven.TestData) {
	s.history = append(s.history[:0], *d)
	clear(s.names)
	clear(s.written)
	var shape setup
	shape.windows = s.numbers(d, "windows")
	shape.sink = s.number(d, "sink", 0)
	shape.waiting = s.number(d, "waiting", 0)
	for _, n := range s.numbers(d, "pages") {
		shape.pages = append(shape.pages, windows.PageCounts{
			Primary: n, Secondary: s.number(d, "host", 0),
		})
	}
	shape.change = func(c *windows.Config) {
		for _, arg := range d.CmdArgs {
			if arg.Key == "without" {
				c.CopyOnPartialReuse = arg.Vals[0] != "copies"
				c.EnablePartialReuse = arg.Vals[0] != "partial"
				c.EnableBlockReuse = arg.Vals[0] != "reuse"
			}
		}
		if d.HasArg("forecast") {
			c.EvictionPolicy = windows.Forecast
		}
		c.SecondaryOffloadMinPriority = s.number(d, "onlyabove", c.SecondaryOffloadMinPriority)
	}
	shape.ahead, shape.encoder, shape.states = d.HasArg("ahead"), d.HasArg("encoder"),
		d.HasArg("states")
	shape.store = s.saves(d)
	shape.least = messages.Priority(s.number(d, "least", 0))
	shape.every = s.number(d, "every", 0)
	s.world = newWorld(s.t, shape)
	s.Answered = s.answered
	s.Aborted = func(request any, err error) {
		s.aborted = s.aborted || request == s.current
		if m, ok := request.(*messages.Admit); ok {
			delete(s.waiting, m)
		}
		fmt.Fprintf(&s.out, "aborted: %v\n", err)
	}
	s.moved = func(m messages.Rebalanced) {
		for i, p := range m.Pools {
			fmt.Fprintf(&s.out, "%s: %d pages, held pages moved %v\n", p.Name, p.PrimaryPages, m.Moved[i])
		}
	}
	s.recovered = func(r coordinator.Recovered) {
		if !s.quiet {
			fmt.Fprintf(&s.out, "recovered: %d sequences are lost, %d pages are kept\n", r.LostSequences,
				r.KeptPages)
		}
	}
	s.Before, s.After = s.before, func(to string, message any) {
		if r, ok := message.(*protocol.ResizeDevice); ok && s.refuse > 0 {
			s.refuse--
			r.Err = errors.New("out of device memory")
		}
		if !s.quiet && !isAudit(message) {
			s.out.record(to, message)
		}
	}
}

// stageOf is the transaction that is under way and its stage.
func stageOf(e *direct.Engine) string {
	line, _, _ := strings.Cut(e.String(), "\n")
	_, stage, _ := strings.Cut(line, ": ")
	for range 2 { // "n answers to come" and "n queued"
		if i := strings.LastIndex(stage, ", "); i >= 0 {
			stage = stage[:i]
		}
	}
	return stage
}

// before prints the stage when it is another one, and makes actors fail. In the middle
// of every stage it checks the coordinator.
func (s *script) before(to string, message any) bool {
	if isAudit(message) {
		return true
	}
	if !s.quiet {
		if stage := stageOf(s.Engine); stage != s.stage {
			s.stage = stage
			fmt.Fprintf(&s.out, "%s\n", stage)
		}
	}
	require.NoError(s.t, s.CheckCoordinator(), "%v before a %T", s.Engine, message)
	if len(s.lost) == 0 || s.lost[0].failure.Actor != to && s.lost[0].failure.Actor != "coordinator" {
		return true
	}
	if s.lost[0].after > 0 {
		s.lost[0].after--
		return true
	}
	fmt.Fprintf(&s.out, "  %-9s FAILS over a %T\n", to, message)
	f := s.lost[0].failure
	s.lost = s.lost[1:]
	if f.Actor == "coordinator" {
		panic(f)
	}
	s.Fail(f)
	return false
}

// isAudit tells the messages of a check from those of requests: builds with the tag
// invariants check everything after each round, and scripts do not show it.
func isAudit(message any) bool {
	_, audit := message.(*protocol.Audit)
	return audit
}

// Do serves a request, also if the coordinator fails over it. It returns false if the
// request was aborted.
func (s *script) Do(request any) bool {
	s.current, s.aborted = request, false
	if serve := s.serve; serve != nil {
		s.serve = nil
		serve(request)
		return !s.aborted
	}
	s.doOrPanic(request)
	return !s.aborted
}

func (s *script) doOrPanic(request any) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case coordinator.Failure:
			s.Fail(f)
			s.Recover()
		default:
			panic(f)
		}
	}()
	s.world.Do(request)
}

func (s *script) lose(d *datadriven.TestData) {
	actor := d.CmdArgs[0].Key
	s.lost = append(s.lost, &loss{
		failure: coordinator.Failure{
			Actor: actor, Dirty: d.HasArg("dirty"),
			Cause: refusals.New(messages.ErrInternal, "%s failed", actor),
		},
		after: s.number(d, "at", 1) - 1,
	})
}

// request serves one request of a host.
func (s *script) request(d *datadriven.TestData) {
	switch d.Cmd {
	case "admit":
		s.admit(d)
	case "commit":
		s.commit(d)
	case "append":
		s.append(d)
	case "release", "discard":
		s.release(d)
	case "rewind", "fork":
		s.rewindOrFork(d)
	case "pin", "unpin", "lookup", "prefetch":
		s.stored(d)
	case "fetch":
		s.fetch(d)
	case "import", "describe":
		s.handOver(d)
	default:
		s.rare(d)
	}
}

// sequence gives what the host knows of a sequence; nil if it is lost or unknown.
func (s *script) sequence(name string) *hostSequence { return s.running[s.names[name]] }

// stepsOf are the arguments of a command that name sequences.
func stepsOf(d *datadriven.TestData) []datadriven.CmdArg {
	return slices.DeleteFunc(slices.Clone(d.CmdArgs), func(arg datadriven.CmdArg) bool {
		return arg.Key == "after" || arg.Key == "commits"
	})
}

// after is the kernel that the steps of a command name: after=3 is the third on the stream of
// the host.
func (s *script) after(d *datadriven.TestData) messages.Ticket {
	n := s.number(d, "after", 0)
	if n == 0 {
		return messages.Ticket{}
	}
	return messages.Ticket{Stream: 9, Seq: uint64(n)}
}
