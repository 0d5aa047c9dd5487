package coordinator_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// trace writes the messages of the coordinator as a script prints them: one line
// for each, with what was asked and what was answered.
type trace struct{ strings.Builder }

// record writes one message that was served.
func (t *trace) record(to string, message any) {
	if m, is := message.(*protocol.Move); is && len(partsOf(m)) == 0 {
		return // most stages have nothing to say to the offloader
	}
	fmt.Fprintf(t, "  %-9s ", to)
	switch m := message.(type) {
	case *protocol.Match:
		t.match(m)
	case *protocol.Apply:
		t.apply(m)
	case *protocol.PoolWork:
		t.work(m)
	case *protocol.Move:
		t.WriteString(strings.Join(partsOf(m), ", "))
	case *protocol.Forget:
		fmt.Fprintf(t, "forget: %d blocks, %d effects", m.Blocks, len(m.Effects))
	case *protocol.Locate:
		fmt.Fprintf(t, "locate %v: %s", m.Blocks, locations(m.Pages))
	case *protocol.SavePages:
		t.WriteString("save")
		for _, it := range m.Items {
			fmt.Fprintf(t, " %d of pool %d", it.Block, it.Pool)
		}
	case *protocol.ResizePool:
		fmt.Fprintf(t, "resize to %d pages: %d victims, moves %s", m.Pages, len(m.Victims),
			pageMoves(m.Moves))
	case *protocol.ResizeDevice:
		fmt.Fprintf(t, "resize the device to %v pages", m.Pages)
		for i, ticket := range m.Waits {
			fmt.Fprintf(t, "%s %d of stream %d", []string{" after", ","}[min(i, 1)], ticket.Seq,
				ticket.Stream)
		}
		if m.Quiesce {
			fmt.Fprintf(t, ", quiesce, dirty %v", m.Dirty)
		}
		if m.Err != nil {
			fmt.Fprintf(t, ": %v", m.Err)
		}
	case *protocol.OffloadAhead:
		fmt.Fprintf(t, "copy ahead: %v copied", m.Copied)
	case *protocol.ListLocations:
		fmt.Fprintf(t, "list locations: %d, emptied %v", len(m.Blocks), m.EmptyTree)
	case *protocol.RebuildPool:
		fmt.Fprintf(t, "rebuild from %d kept pages", len(m.Kept))
	case *protocol.HostRoom:
		fmt.Fprintf(t, "room for %v pages, displaceable of the prefix %v", m.Pages, m.Displaceable)
	case *protocol.LoadPages:
		counts := make([]int, len(m.Bytes))
		for p := range m.Bytes {
			counts[p] = len(m.Bytes[p])
		}
		fmt.Fprintf(t, "load %v, keep %v: pages %v, displaced %v", counts, m.Keep, m.Pages, m.Displaced)
	case *protocol.RebuildHost:
		fmt.Fprintf(t, "rebuild host memory")
	default:
		fmt.Fprintf(t, "%T", message)
	}
	t.WriteByte('\n')
}

func (t *trace) match(m *protocol.Match) {
	var items []string
	for i := range m.Items {
		it := &m.Items[i]
		s := fmt.Sprintf("%d of %d tokens", it.Matched, len(it.Tokens))
		if it.Blocks > 0 {
			s += " " + locations(it.Pages)
		}
		if it.Checkpoint != protocol.NoBlock && it.CheckpointPages != nil {
			s += fmt.Sprintf(" to the checkpoint %s", locations([][]protocol.Location{it.CheckpointPages}))
		}
		if it.Attention > it.Matched {
			s += fmt.Sprintf(", %d without states", it.Attention)
		}
		if it.Source.Block != protocol.NoBlock {
			s += fmt.Sprintf(" and %d tokens of block %d", it.Source.Tokens, it.Source.Block)
		}
		items = append(items, s)
	}
	fmt.Fprintf(t, "match: %s", strings.Join(items, "; "))
}

func (t *trace) apply(m *protocol.Apply) {
	parts := []string{}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, v := range m.Moves {
		add("block %d of pool %d to %s", v.Block, v.Pool, location(v.To))
	}
	for _, b := range m.Takeovers {
		add("block %d taken over", b)
	}
	for _, c := range m.Claims {
		add("claim of blocks %v", c.Blocks)
	}
	for _, s := range m.Stores {
		add("store [%d, %d)", s.From, s.To)
		if s.FindEnd {
			add("which ends in block %d, lacking %v", s.End.Block, s.End.Lacks)
			for p, page := range s.HandOver {
				if page != messages.NoPage {
					add("page %d of pool %d handed over", page, p)
				}
			}
		}
	}
	if n := len(m.ReleasedSymbols); n > 0 {
		add("symbols of %d prompts", n)
	}
	if len(parts) == 0 {
		add("time")
	}
	fmt.Fprintf(t, "apply: %s", strings.Join(parts, ", "))
	var effects []string
	for i := range m.Effects {
		e := &m.Effects[i]
		name := [...]string{"attach", "detach", "reprioritize", "appraise", "host yields", "host forgets",
			"host reprioritizes",
			"host attaches", "host appraise", "follow"}[e.Kind]
		if e.Useless {
			name += " as useless"
		}
		effects = append(effects, fmt.Sprintf("%s %v%s", name, e.Blocks, pagesOrNone(e.Pages)))
	}
	if len(effects) > 0 {
		fmt.Fprintf(t, " → %s", strings.Join(effects, ", "))
	}
}

var opNames = map[protocol.PoolOpKind]string{
	protocol.TakeForCheckpoint: "take for a checkpoint",
	protocol.Claim:             "claim", protocol.Unclaim: "unclaim", protocol.Take: "take",
	protocol.Drop:        "drop",
	protocol.AttachPages: "attach", protocol.DetachPages: "detach", protocol.SetPriority: "priority",
	protocol.SetUseless: "appraise", protocol.FollowCheckpoint: "follow", protocol.AddPins: "pin",
	protocol.EndPin: "unpin", protocol.EndCoverage: "end coverage", protocol.Inspect: "inspect",
	protocol.HeldBlocks: "held blocks", protocol.PeekVictims: "peek",
}

func (t *trace) work(m *protocol.PoolWork) {
	var ops []string
	for i := range m.Ops {
		op := &m.Ops[i]
		s := opNames[op.Kind]
		switch op.Kind {
		case protocol.Take:
			s += fmt.Sprintf(" %d: %s", op.N, pages(op.Pages[len(op.Pages)-op.N:]))
		case protocol.HeldBlocks:
			s += fmt.Sprintf(": %v", op.Blocks)
		case protocol.PeekVictims:
			s += fmt.Sprintf(" %d: %d", op.N, op.Count)
		case protocol.Inspect:
			s += pagesOrNone(op.Pages) + ":"
			for _, share := range op.Shares {
				s += fmt.Sprintf(" %d", share.References)
				if share.Stored {
					s += "s"
				}
			}
		default:
			s += pagesOrNone(op.Pages)
		}
		if op.CoveredByReservation {
			s += " covered"
		}
		if op.Awaited {
			s += " awaited"
		}
		ops = append(ops, s)
	}
	t.WriteString(strings.Join(ops, ", "))
	for i, v := range m.Victims {
		fmt.Fprintf(t, "%s page %d of block %d", []string{" → victims", ","}[min(i, 1)], v.Page, v.Block)
	}
}

func partsOf(m *protocol.Move) (parts []string) {
	add := func(failed bool, format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		if failed {
			s += " FAILED"
		}
		parts = append(parts, s)
	}
	for p := range m.Pools {
		q := &m.Pools[p]
		for i, o := range q.Outcomes {
			to := "dropped"
			if o.Host != messages.NoPage {
				to = fmt.Sprintf("to host page %d", o.Host)
			}
			add(o.Failed, "victim block %d %s", q.Victims[i].Block, to)
		}
		for _, c := range q.Copies {
			if c.Zero {
				add(c.Failed, "zeros to page %d", c.To)
				continue
			}
			add(c.Failed, "copy %d tokens of %s to page %d", c.Tokens, location(c.From), c.To)
		}
		for _, o := range q.Onboards {
			add(o.Failed, "onboard block %d to page %d", o.Block, o.To)
		}
		for _, touch := range q.Touches {
			add(false, "touch block %d", touch.Block)
		}
		if len(q.Pins)+len(q.Unpins) > 0 {
			add(false, "pin %v unpin %v", q.Pins, q.Unpins)
		}
	}
	if n := len(m.Effects); n > 0 {
		add(false, "%d effects", n)
	}
	for _, mark := range m.Marks {
		use := "read"
		if mark.Write {
			use = "write"
		}
		add(false, "%s %s until %d", use, pages(mark.Pages), mark.Ticket.Seq)
	}
	if n := len(m.Queries); n > 0 {
		add(false, "%d queries", n)
	}
	return parts
}

func location(l protocol.Location) string {
	page, tier, ok := l.Page()
	switch {
	case !ok:
		return "nowhere"
	case tier == messages.Secondary:
		return fmt.Sprintf("host page %d", page)
	}
	return fmt.Sprintf("page %d", page)
}

// locations draws where each pool keeps some blocks: h0 is a host page.
func locations(pools [][]protocol.Location) string {
	var lists []string
	for _, list := range pools {
		var s []string
		for _, l := range list {
			page, tier, ok := l.Page()
			switch {
			case !ok:
				s = append(s, "-")
			case tier == messages.Secondary:
				s = append(s, fmt.Sprintf("h%d", page))
			default:
				s = append(s, fmt.Sprint(page))
			}
		}
		lists = append(lists, "("+strings.Join(s, " ")+")")
	}
	return strings.Join(lists, " ")
}

func pages(list []messages.PageID) string {
	var s []string
	for _, p := range list {
		if p == messages.NoPage {
			s = append(s, "-")
		} else {
			s = append(s, fmt.Sprint(p))
		}
	}
	return "(" + strings.Join(s, " ") + ")"
}

func pagesOrNone(list []messages.PageID) string {
	if len(list) == 0 {
		return ""
	}
	return " " + pages(list)
}

func pageMoves(moves []protocol.PageMoved) string {
	var s []string
	for _, m := range moves {
		s = append(s, fmt.Sprintf("%d→%d", m.Old, m.New))
	}
	slices.Sort(s)
	return "(" + strings.Join(s, " ") + ")"
}
