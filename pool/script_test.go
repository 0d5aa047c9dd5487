package pool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TestScripts runs the conversations under testdata/scripts. Commands are the
// operations, several lines of a command's input are one PoolWork:
//
//	new name=wfullh8 pages=4 percent=(100,25)     resize pages=2
//	do
//	take n=2 covered
//	attach pages=(0,1) blocks=(7,8) depth=0 priority=35
//	drop pages=(0,1) use=3
//
// The answers are printed, then the pool; a panic is printed instead of them.
func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(*testing.T) scripttest.Serve { return (&script{}).run })
}

type script struct{ pool *Pool }

func (s *script) run(t *testing.T, d *datadriven.TestData) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("panic: %v\n", r)
		}
	}()
	switch d.Cmd {
	case "new":
		var name string
		var pages int
		d.ScanArgs(t, "name", &name)
		d.ScanArgs(t, "pages", &pages)
		var quotas []windows.Quota
		for _, n := range scripttest.Numbers(t, d, "percent") {
			quotas = append(quotas, windows.NoQuota/100*windows.Quota(n))
		}
		s.pool = New(name, pages, quotas...)
		return s.pool.String()
	case "resize":
		var r protocol.ResizePool
		d.ScanArgs(t, "pages", &r.Pages)
		s.pool.Resize(&r)
		return drawVictims(r.Victims) + drawMoves(pageMoves(r.Moves)) + s.pool.String()
	case "do":
		return s.do(t, d)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	}
}

var scriptKinds = map[string]protocol.PoolOpKind{
	"claim": protocol.Claim, "unclaim": protocol.Unclaim, "take": protocol.Take, "drop": protocol.Drop,
	"attach": protocol.AttachPages, "detach": protocol.DetachPages, "priority": protocol.SetPriority,
	"pin": protocol.AddPins, "unpin": protocol.EndPin, "uncover": protocol.EndCoverage,
	"inspect": protocol.Inspect, "held": protocol.HeldBlocks, "checkpoint": protocol.TakeForCheckpoint,
}

func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	var w protocol.PoolWork
	for _, line := range strings.Split(d.Input, "\n") {
		w.Ops = append(w.Ops, parseOp(t, d, line))
	}
	s.pool.Do(&w)
	var b strings.Builder
	for _, op := range w.Ops {
		switch op.Kind {
		case protocol.Take, protocol.TakeForCheckpoint:
			fmt.Fprintf(&b, "take: %v\n", op.Pages)
		case protocol.Inspect:
			fmt.Fprintf(&b, "inspect: %+v\n", op.Shares)
		case protocol.HeldBlocks:
			fmt.Fprintf(&b, "held: %v\n", op.Blocks)
		}
	}
	return b.String() + drawVictims(w.Victims) + s.pool.String()
}

func parseOp(t *testing.T, d *datadriven.TestData, line string) protocol.PoolOp {
	cmd, args, err := datadriven.ParseLine(line)
	kind, ok := scriptKinds[cmd]
	if err != nil || !ok {
		d.Fatalf(t, "cannot read %q: %v", line, err)
	}
	op := protocol.PoolOp{Kind: kind, N: 1, Priority: messages.DefaultPriority}
	if kind != protocol.Take && kind != protocol.AddPins {
		op.N = 0
	}
	for _, arg := range args {
		for i, value := range arg.Vals {
			var n int
			arg.Scan(t, i, &n)
			switch arg.Key {
			case "pages":
				op.Pages = append(op.Pages, messages.PageID(n))
			case "blocks":
				op.Blocks = append(op.Blocks, protocol.BlockID(n))
			case "depth":
				op.Depth = int32(n)
			case "priority":
				op.Priority = messages.Priority(n)
			case "use":
				op.Use = protocol.Use(n)
			case "n":
				op.N = n
			case "tenant":
				op.Tenant = protocol.Tenant(n)
			default:
				d.Fatalf(t, "unknown argument %s=%s", arg.Key, value)
			}
		}
		op.CoveredByReservation = op.CoveredByReservation || arg.Key == "covered"
	}
	return op
}

func drawVictims(victims []protocol.Victim) string {
	var b strings.Builder
	for _, v := range victims {
		fmt.Fprintf(&b, "victim: page %d block %d depth %d priority %d use %d\n", v.Page, v.Block,
			v.Depth, v.Priority, v.Use)
	}
	return b.String()
}

func drawMoves(moves []messages.PageMove) string {
	var b strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&b, "move: page %d to %d\n", m.Old, m.New)
	}
	return b.String()
}
