package offloader

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// script is one offloader of one pool that a file drives.
type script struct {
	t   *testing.T
	o   *Offloader
	seq [allStreams + 1]uint64
}

// TestScripts runs testdata/scripts. The commands:
//
//	new host=N [min=P] [slice=PAGES] [forecast]
//	move stamp=N [refuse=LANE,INDEX] [now=N]    refuses one copy, the first time it comes;
//	                                            ranks by scriptRanking
//	ahead [refuse=...]
//	draw
//
// Lines of a move: victim, onboard, copy, mark, ready, pin, unpin, yield,
// forget, reprioritize; of ahead: victim.
func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(t *testing.T) scripttest.Serve { return (&script{t: t}).serve })
}

func (s *script) serve(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		return s.open(d)
	case "move":
		return s.move(d)
	case "ahead":
		return s.ahead(d)
	case "draw":
		return s.o.String()
	}
	d.Fatalf(t, "no command %q", d.Cmd)
	return ""
}

func (s *script) open(d *datadriven.TestData) string {
	c := PoolConfig{Name: "wfullh2", PageBytes: 128,
		Regions:        []windows.Region{{Runs: 8, TokenBytes: 4}},
		TokensPerBlock: 4}
	c.Policy = policyOf(d.HasArg("forecast"))
	priority, slice := 35, 100
	d.MaybeScanArgs(s.t, "host", &c.HostPages)
	d.MaybeScanArgs(s.t, "min", &priority)
	d.MaybeScanArgs(s.t, "slice", &slice)
	s.seq = [allStreams + 1]uint64{}
	s.o = New(Config{
		Pools: []PoolConfig{c}, MinPriority: messages.Priority(priority),
		SliceBytes: int64(slice) * c.PageBytes,
	})
	return s.o.String()
}

// fields is one line of a command: a word, then key=value pairs and flags.
type fields struct {
	t    *testing.T
	word string
	args map[string]string
	rest []string
}

func (s *script) lines(d *datadriven.TestData) []fields {
	var out []fields
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		f := fields{t: s.t, word: words[0], args: map[string]string{}}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				f.args[k] = v
			} else {
				f.rest = append(f.rest, w)
			}
		}
		out = append(out, f)
	}
	return out
}

func (f fields) num(key string) int {
	n, err := strconv.Atoi(f.args[key])
	require.NoError(f.t, err, "%s %s", f.word, key)
	return n
}

func (f fields) first() protocol.BlockID {
	n, err := strconv.Atoi(f.rest[0])
	require.NoError(f.t, err, f.word)
	return protocol.BlockID(n)
}

func (f fields) pages(key string) []messages.PageID {
	var out []messages.PageID
	for _, w := range strings.FieldsFunc(f.args[key], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(w)
		require.NoError(f.t, err, f.word)
		out = append(out, messages.PageID(n))
	}
	return out
}

func (f fields) ticket() messages.Ticket {
	var t messages.Ticket
	_, err := fmt.Sscanf(f.args["at"], "s%d:%d", &t.Stream, &t.Seq)
	require.NoError(f.t, err, f.word)
	return t
}

func (f fields) victim() protocol.Victim {
	return protocol.Victim{
		Page: messages.PageID(f.num("page")), Block: protocol.BlockID(f.num("block")),
		Depth: int32(f.num("depth")), Priority: messages.Priority(f.num("priority")),
		Use: protocol.Use(f.num("use")),
	}
}

// add puts the line into a Move.
func (f fields) add(m *protocol.Move) {
	pm := &m.Pools[0]
	switch f.word {
	case "victim":
		pm.Victims = append(pm.Victims, f.victim())
		if f.args["features"] != "" {
			pm.Pieces = append(pm.Pieces, protocol.EvictedPiece{
				End: len(pm.Victims), Features: protocol.Features{Wait: int64(uint64(f.num("features")))},
				Last: int64(f.num("last")),
			})
		}
	case "onboard":
		on := protocol.Onboard{Block: protocol.BlockID(f.num("block")), To: messages.PageID(f.num("to")),
			Free: len(f.rest) > 0}
		pm.Onboards = append(pm.Onboards, on)
	case "copy":
		c := protocol.PageCopy{To: messages.PageID(f.num("to")), Tokens: f.num("tokens"),
			Block: protocol.NoBlock}
		if f.args["host"] != "" {
			c.From, c.Block = protocol.OnHost(messages.PageID(f.num("host"))),
				protocol.BlockID(f.num("block"))
		} else {
			c.From = protocol.OnDevice(messages.PageID(f.num("device")))
		}
		pm.Copies = append(pm.Copies, c)
	case "zero":
		pm.Copies = append(pm.Copies, protocol.PageCopy{To: messages.PageID(f.num("to")), Zero: true})
	case "mark":
		m.Marks = append(m.Marks, protocol.Mark{Pages: f.pages("pages"), Write: f.rest[0] == "write",
			Ticket: f.ticket()})
	case "ready":
		m.Queries = append(m.Queries, protocol.WaitQuery{
			Read: [][]messages.PageID{f.pages("read")}, Write: [][]messages.PageID{f.pages("write")},
		})
	case "pin":
		pm.Pins = append(pm.Pins, f.first())
	case "unpin":
		pm.Unpins = append(pm.Unpins, protocol.Touch{Block: f.first(), Use: protocol.Use(f.num("use"))})
	case "yield", "forget", "reprioritize":
		e := protocol.Effect{Blocks: []protocol.BlockID{f.first()}}
		switch f.word {
		case "yield":
			e.Kind = protocol.HostYield
		case "forget":
			e.Kind = protocol.HostForget
		default:
			e.Kind, e.Priority = protocol.HostReprioritize, messages.Priority(f.num("priority"))
		}
		m.Effects = append(m.Effects, e)
	default:
		f.t.Fatalf("no line %q", f.word)
	}
}

// scriptRanking is a policy by which a piece is worth its features until 100 after its last use,
// and nothing from then on, unless it is awaited: then it is worth 1,000 and the time at which the
// wait began.
type scriptRanking struct{ now int64 }

func (r scriptRanking) Now() int64 { return r.now }

func (r scriptRanking) Rank(f protocol.Features, last int64, _ int32) int32 {
	if r.now >= last+100 && f.Wait < 1000 {
		return 0
	}
	return int32(f.Wait)
}

func (r scriptRanking) Await(protocol.Features) protocol.Features {
	return protocol.Features{Wait: 1000 + r.now}
}

func (s *script) move(d *datadriven.TestData) string {
	m := protocol.Move{Pools: make([]protocol.PoolMove, 1)}
	d.ScanArgs(s.t, "stamp", &m.Stamp)
	if d.HasArg("now") {
		var r scriptRanking
		d.ScanArgs(s.t, "now", &r.now)
		m.Pools[0].Ranking = r
	}
	for _, f := range s.lines(d) {
		f.add(&m)
	}
	var b strings.Builder
	s.o.Begin(&m)
	s.run(d, &b)
	s.o.Finish()
	require.NoError(s.t, s.o.Check())
	drawAnswers(&b, &m)
	return b.String()
}

func (s *script) ahead(d *datadriven.TestData) string {
	var candidates []protocol.Victim
	for _, f := range s.lines(d) {
		candidates = append(candidates, f.victim())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "planned %d\n", s.o.PlanAhead(0,
		&protocol.EvictionCandidates{Victims: candidates, Evictable: len(candidates)}))
	s.run(d, &b)
	s.o.Finish()
	require.NoError(s.t, s.o.Check())
	return b.String()
}

// run submits everything, with one refusal if the command says so: of a page or
// piece of the lane's first submission. One in a run is refused once more alone.
func (s *script) run(d *datadriven.TestData, b *strings.Builder) {
	lane, index := "", -1
	if d.HasArg("refuse") {
		d.ScanArgs(s.t, "refuse", &lane, &index)
	}
	for sub := s.o.Next(); sub != nil; sub = s.o.Next() {
		fmt.Fprintf(b, "%s", sub.Lane)
		for _, w := range sub.Waits {
			fmt.Fprintf(b, " after %s", point(w))
		}
		b.WriteByte('\n')
		for _, c := range sub.Copies {
			if c.Zero {
				fmt.Fprintf(b, "  zeros -> %s %d, %d bytes\n", c.Dst.Tier, c.Dst.Page, c.Bytes)
				continue
			}
			if c.Pages > 1 {
				n := messages.PageID(c.Pages)
				fmt.Fprintf(b, "  %s %d-%d -> %s %d-%d\n", c.Src.Tier, c.Src.Page, c.Src.Page+n-1, c.Dst.Tier,
					c.Dst.Page, c.Dst.Page+n-1)
				continue
			}
			fmt.Fprintf(b, "  %s %d -> %s %d", c.Src.Tier, c.Src.Page, c.Dst.Tier, c.Dst.Page)
			if c.Bytes < 128 {
				fmt.Fprintf(b, " [%d,%d)", c.SrcOffset, c.SrcOffset+c.Bytes)
			}
			b.WriteByte('\n')
		}
		failed := -1
		if sub.Lane.String() == lane {
			_, of := singly(sub.Copies)
			failed, lane = of[index], ""
			if sub.Copies[failed].Pages > 1 { // then the page alone
				lane, index = sub.Lane.String(), index-slices.Index(of, failed)
			}
		}
		var t messages.Ticket
		if failed != 0 {
			stream := messages.StreamID(sub.Lane) + 1
			s.seq[stream]++
			t = messages.Ticket{Stream: stream, Seq: s.seq[stream]}
		}
		if failed >= 0 {
			fmt.Fprintf(b, "  copy %d refused\n", failed)
		}
		s.o.Submitted(t, failed)
	}
}

func drawAnswers(b *strings.Builder, m *protocol.Move) {
	pm := &m.Pools[0]
	for i, out := range pm.Outcomes {
		fmt.Fprintf(b, "block %d:", pm.Victims[i].Block)
		switch {
		case out.Failed:
			b.WriteString(" failed")
		case out.Host == messages.NoPage:
			b.WriteString(" dropped")
		case out.Copied:
			fmt.Fprintf(b, " to host page %d", out.Host)
		default:
			fmt.Fprintf(b, " is on host page %d", out.Host)
		}
		if out.Displaced != protocol.NoBlock {
			fmt.Fprintf(b, ", displaced %d", out.Displaced)
		}
		b.WriteByte('\n')
	}
	for _, c := range pm.Copies {
		if c.Failed {
			fmt.Fprintf(b, "copy to page %d: failed\n", c.To)
		}
	}
	for _, on := range pm.Onboards {
		if on.Failed {
			fmt.Fprintf(b, "onboard of block %d: failed\n", on.Block)
		}
	}
	for _, r := range m.Queries {
		b.WriteString("ready")
		for _, t := range r.Tickets {
			b.WriteString(" " + point(t))
		}
		b.WriteByte('\n')
	}
	c := m.Counts[0]
	fmt.Fprintf(b, "used %d cached %d free %d\n", c.Used, c.Cached, c.Free)
}
