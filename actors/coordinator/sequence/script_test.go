package sequence

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TestScripts runs the conversations under testdata/scripts. Each command is what a
// transaction of the coordinator does to sequences; then all sequences are checked and
// drawn. Pages are taken from a counter, which goes on from pool to pool.
//
//	new windows=(6,12,0) sink=3         a window of 0 is full attention
//	admit a=10 [matched=n] [chunk=n] [beams=n] [symbols]
//	commit a=10    extend a=3    parents a=(0,0)    own a=1
//	rewind a=2     fork a=b      lose a           end a
//	abandon                             two sequences that are never admitted
//	renumber pool=0 from=3 to=7         forget      the tree was emptied
func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(*testing.T) scripttest.Serve { return (&script{}).run })
}

type script struct {
	t     *testing.T
	arena *Arena
	names map[string]messages.SequenceID
	page  messages.PageID
	stamp uint64
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	s.stamp++
	if d.Cmd == "new" {
		s.open(d)
		return s.arena.String()
	}
	said := s.serve(d)
	require.NoError(t, s.arena.Check())
	return said + s.arena.String()
}

func (s *script) serve(d *datadriven.TestData) string {
	switch d.Cmd {
	case "admit":
		s.admit(d)
	case "abandon":
		for range 2 {
			s.arena.Open(s.stamp).Begin(Origin{Prompt: 3}, make([]messages.Token, 3), 0)
		}
		opened := s.arena.String()
		s.arena.EndOpenedBy(s.stamp)
		return opened + "then\n"
	case "renumber":
		s.arena.Renumber(s.number(d, "pool"),
			map[messages.PageID]messages.PageID{messages.PageID(s.number(d, "from")): messages.PageID(
				s.number(d, "to"))})
	case "forget":
		s.arena.Each((*Sequence).ForgetTree)
	default:
		return s.change(d)
	}
	return ""
}

// change does something to one sequence, if it runs.
func (s *script) change(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	q, err := s.arena.FindOnce(s.names[name], s.stamp)
	if d.Cmd == "end" {
		q = s.arena.Holder(s.names[name])
	} else if err != nil {
		return fmt.Sprintf("%v\n", err)
	}
	q.Touched = s.stamp
	switch d.Cmd {
	case "commit":
		return s.commit(q, TokenCount(s.value(d)))
	case "extend":
		q.Extend(make([]messages.Token, s.value(d)))
		s.grow(q)
	case "parents":
		s.follow(q, d)
	case "own":
		q.OwnFrom(BlockIndex(s.value(d)))
	case "rewind":
		return s.rewind(q, TokenCount(s.value(d)))
	case "fork":
		f := s.arena.Open(s.stamp)
		q.Fork(f)
		s.names[d.CmdArgs[0].Vals[0]] = f.ID()
	case "lose":
		q.MarkLost(LostCopy)
		q.MarkLost(LostActor) // the first reason stays
	case "end":
		held := s.arena.PagesHeld()
		symbols := q.ReleaseSymbols()
		s.arena.End(q)
		return fmt.Sprintf("%d pages are held, %d before, symbols of %d tokens to be released\n",
			s.arena.PagesHeld(), held, len(symbols))
	default:
		d.Fatalf(s.t, "no command")
	}
	return ""
}

func (s *script) open(d *datadriven.TestData) {
	var pools []windows.Pool
	for i, w := range scripttest.Numbers(s.t, d, "windows") {
		p := windows.Pool{ID: messages.PoolID(i), Name: fmt.Sprintf("w%d", w), Window: w, KVHeads: 1,
			HeadDim: 1, DType: windows.Int8, Layers: []int{i}, TokensPerBlock: tpb}
		if w > 0 {
			p.Sink = s.number(d, "sink")
		}
		pools = append(pools, p)
	}
	s.arena, s.names, s.page = NewArena(pools, tpb, 0), map[string]messages.SequenceID{}, 0
}

func (s *script) admit(d *datadriven.TestData) {
	n, matched := s.value(d), s.number(d, "matched")
	q := s.arena.Open(s.stamp)
	s.names[d.CmdArgs[0].Key] = q.ID()
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(i)
	}
	q.Begin(Origin{Prompt: TokenCount(n)}, tokens, TokenCount(s.number(d, "chunk")))
	if d.HasArg("symbols") {
		q.HoldSymbols()
	}
	whole := BlockIndex(matched / tpb)
	q.Plan(whole, TokenCount(matched))
	for p := range s.arena.pools {
		end := blocksOf(n)
		if q.Covered(p) {
			end = blocksOf(int(q.ChunkEnd()))
		}
		table := s.take(end)
		shape := &s.arena.pools[p]
		for b := shape.SinkBlocks(); b < shape.FirstKept(matched); b++ {
			table[b] = messages.NoPage // outside of the window, so it was not claimed
		}
		q.SetTable(p, table)
	}
	q.Spread(max(1, s.number(d, "beams")))
	q.Admit(func(p int) PageCount {
		if !q.Covered(p) {
			return 0
		}
		return q.ChunkReserve(p, whole)
	})
}

// commit computes a sequence up to n tokens, and says what leaves the windows.
func (s *script) commit(q *Sequence, n TokenCount) (said string) {
	next := make([]int, len(s.arena.pools))
	for p := range s.arena.pools {
		if from, to := q.LeavingWindow(p, n); from < to {
			said += fmt.Sprintf("blocks [%d, %d) leave the window of %s\n", from, to, s.arena.pools[p].Name)
		}
		if q.Covered(p) && n < q.Prompt {
			next[p] = blocksOf(int(q.NextChunkEnd(n))) - len(q.Table(p))
		}
	}
	q.Commit(n, &Stored{Blocks: s.arena.wholeBlocks(n)})
	for p := range next {
		q.SetTable(p, append(q.Table(p), s.take(next[p])...))
	}
	return said
}

// follow makes beams the children of others.
func (s *script) follow(q *Sequence, d *datadriven.TestData) {
	var steps []messages.BeamStep
	for _, parent := range scripttest.Numbers(s.t, d, d.CmdArgs[0].Key) {
		steps = append(steps, messages.BeamStep{Parent: parent, Token: 9})
	}
	for p := range s.arena.pools {
		var tables [][]messages.PageID
		for _, step := range steps {
			tables = append(tables, slices.Clone(q.Tables(p)[step.Parent]))
		}
		q.SetTables(p, tables)
	}
	q.ExtendBeams(steps)
	s.grow(q)
}

// grow gives the blocks of a sequence that have none a page.
func (s *script) grow(q *Sequence) {
	for p := range s.arena.pools {
		tables := slices.Clone(q.Tables(p))
		for i := range tables {
			tables[i] = append(tables[i], s.take(blocksOf(int(q.Length()))-len(tables[i]))...)
		}
		q.SetTables(p, tables)
	}
}

func (s *script) rewind(q *Sequence, n TokenCount) string {
	if p, block, refused := q.DroppedBefore(n); refused {
		return fmt.Sprintf("refused: block %d of %s has been dropped\n", block, s.arena.pools[p].Name)
	}
	dropped := q.Blocks() - q.RewindBlocks(n)
	q.Rewind(n)
	return fmt.Sprintf("%d blocks are dropped\n", dropped)
}

func (s *script) take(n int) (pages []messages.PageID) {
	for range n {
		pages = append(pages, s.page)
		s.page++
	}
	return pages
}

// value is that of the first argument.
func (s *script) value(d *datadriven.TestData) int { return s.number(d, d.CmdArgs[0].Key) }

// number is the value of an argument, 0 without it.
func (s *script) number(d *datadriven.TestData, key string) int {
	return scripttest.Number(s.t, d, key, 0)
}
