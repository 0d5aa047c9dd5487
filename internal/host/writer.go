package host

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// Writer stands for the kernels of a model: each step is one kernel on a
// compute stream that reads the context of the tokens it computes and writes
// their keys and values. Launch may be called by one goroutine at a time,
// Problems by any.
type Writer struct {
	config WriterConfig
	ranks  [][]Layout // by rank: Layouts on it

	mu       sync.Mutex
	problems []string // of reads, seen by kernels
	checked  Checked
}

// Checked counts the pages that kernels have read, on each rank.
type Checked struct {
	Pages int64
	Wrong int64 // of these, pages with wrong bytes
}

// WriterConfig is where a Writer writes.
type WriterConfig struct {
	Launcher gpu.Launcher
	Stream   gpu.Stream
	Pools    []gpu.Pool // the device's handles, by PoolID
	Layouts  []Layout   // by PoolID
	// NanosPerToken is how long the device takes for each token written.
	NanosPerToken int64
	// Ranks is how many devices the kernels run on, each with its own share of every page
	// (package gpu/group); 0 stands for 1.
	Ranks int
}

// NewWriter makes a Writer.
func NewWriter(c WriterConfig) *Writer {
	w := &Writer{config: c}
	for rank := range max(1, c.Ranks) {
		w.ranks = append(w.ranks, OfRank(c.Layouts, rank))
	}
	return w
}

// Span is a range of tokens of one beam and the pages they lie in.
type Span struct {
	Chains   []Chain // of the beam, from its first token on
	From, To int     // tokens [From, To)
	Table    Table
	First    messages.PoolID // the pool that Table begins with
}

// Table is the page table of one beam: [pool][block].
type Table [][]messages.PageID

// Beam picks the table of one beam.
func Beam(t messages.Tables, beam int) Table {
	table := make(Table, len(t))
	for pool := range t {
		table[pool] = t[pool][beam]
	}
	return table
}

// Step is what one kernel does. The spans may be changed when Launch has
// returned.
type Step struct {
	Label  string
	Nanos  int64        // that it takes; 0: NanosPerToken for each token written
	Waits  []gpu.Ticket // what the engine called Ready
	Reads  []Span       // the context; blocks without a page are passed over
	Writes []Span
	States []StateUpdate // of recurrent layers
}

// piece is the part of a span that lies in one page.
type piece struct {
	layout *Layout // on rank 0
	pool   int
	slot   gpu.Slot
	first  int // token of the block
	chains []Chain
}

// Launch queues the kernel of a step. The ticket is the one to pass as After:
// once it has passed, the kernel has done all its reads and writes. A step that
// writes nothing and has no Nanos launches nothing and has the zero ticket, the past.
func (w *Writer) Launch(s Step) (gpu.Ticket, error) {
	writes, err := w.pieces(s.Writes)
	if err != nil || len(writes) == 0 && len(s.States) == 0 && s.Nanos == 0 {
		return gpu.Ticket{}, err
	}
	// Two beams that still share a page would write the same rows twice.
	writes = distinct(writes)
	reads, err := w.pieces(s.Reads)
	if err != nil {
		return gpu.Ticket{}, err
	}
	reads = distinct(reads)
	nanos := s.Nanos
	if nanos == 0 {
		for _, span := range s.Writes {
			nanos += int64(span.To-span.From) * w.config.NanosPerToken
		}
	}
	states := slices.Clone(s.States)
	run := func(rank int, bytes gpu.PageBytes) {
		w.run(rank, bytes, reads, writes)
		w.updateStates(rank, bytes, states)
	}
	k := gpu.Kernel{
		Label: s.Label, Waits: s.Waits, Nanos: nanos,
		Reads:  append(accesses(reads), w.stateAccesses(states)...),
		Writes: append(accesses(writes), w.stateAccesses(states)...),
		Run:    func(bytes gpu.PageBytes) { run(0, bytes) },
	}
	if len(w.ranks) > 1 {
		k.RunRank = run
	}
	return w.config.Launcher.Launch(w.config.Stream, k)
}

// Problems gives what kernels have found wrong in the pages that they read, and
// forgets it.
func (w *Writer) Problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ps := w.problems
	w.problems = nil
	return ps
}

// Checked counts what kernels have read so far.
func (w *Writer) Checked() Checked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checked
}

// run is the kernel on one rank.
func (w *Writer) run(rank int, bytes gpu.PageBytes, reads, writes []piece) {
	spread(reads, func(r *piece) {
		if err := w.ranks[rank][r.pool].Verify(bytes(r.slot), r.first, r.chains...); err != nil {
			w.report(fmt.Sprintf("pool %s, page %d, read by a kernel%s: %v", r.layout.pool.Name, r.slot.Page,
				w.on(rank), err))
		}
	})
	spread(writes, func(p *piece) {
		w.ranks[rank][p.pool].Write(bytes(p.slot), p.first, p.chains...)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked.Pages += int64(len(reads))
}

// fewPieces is up to how many pieces the goroutines would cost more than they save.
const fewPieces = 32

// spread does something with every piece, on all processors if there are many: pages are
// independent of one another.
func spread(list []piece, do func(*piece)) {
	parts := max(1, min(runtime.GOMAXPROCS(0), len(list)/fewPieces))
	var all sync.WaitGroup
	for part := range parts {
		some := func() {
			for i := part * len(list) / parts; i < (part+1)*len(list)/parts; i++ {
				do(&list[i])
			}
		}
		if parts == 1 {
			some()
		} else {
			all.Go(some)
		}
	}
	all.Wait()
}

// on names a rank where there are several.
func (w *Writer) on(rank int) string {
	if len(w.ranks) == 1 {
		return ""
	}
	return fmt.Sprintf(" on rank %d", rank)
}

func (w *Writer) report(problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked.Wrong++
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, problem)
	}
}

// errNoPage is the error of a span that is to be written where there is no page.
var errNoPage = errors.New("no page to write to")

// pieces cuts spans into pages. The chains are copied: the kernel runs later,
// when the sequence may have been rewound and grown again.
func (w *Writer) pieces(spans []Span) ([]piece, error) {
	var out []piece
	for _, s := range spans {
		chains := slices.Clone(s.Chains[s.From:s.To])
		for i, table := range s.Table {
			pool := int(s.First) + i
			layout := &w.config.Layouts[pool]
			if layout.HoldsStates() {
				continue // Step.States has them
			}
			tpb := layout.pool.TokensPerBlock
			for at := s.From; at < s.To; {
				block, end := at/tpb, min(s.To, (at/tpb+1)*tpb)
				if block >= len(table) {
					return nil, fmt.Errorf("pool %s, block %d of %d: %w", layout.pool.Name, block, len(table),
						errNoPage)
				}
				if page := table[block]; page != messages.NoPage {
					out = append(out, piece{
						layout: layout, pool: pool, first: at % tpb, chains: chains[at-s.From : end-s.From],
						slot: gpu.Slot{Pool: w.config.Pools[pool], Tier: messages.Primary, Page: page},
					})
				}
				at = end
			}
		}
	}
	return out, nil
}

// distinct drops pieces that touch the same rows as an earlier one.
func distinct(pieces []piece) []piece {
	type rows struct {
		slot         gpu.Slot
		first, count int
	}
	seen := make(map[rows]bool, len(pieces))
	return slices.DeleteFunc(pieces, func(p piece) bool {
		key := rows{p.slot, p.first, len(p.chains)}
		was := seen[key]
		seen[key] = true
		return was
	})
}

// maxRuns is up to how many runs of a page are declared one by one. Beyond it
// the declaration would cost more than the kernel, and one range is declared
// from the first row to the last: no one else may use such a page anyway.
const maxRuns = 64

// accesses declares what pieces touch.
func accesses(pieces []piece) []gpu.Access {
	var out []gpu.Access
	for i := range pieces {
		p := &pieces[i]
		l, n := p.layout, len(p.chains)
		switch {
		case n == l.pool.TokensPerBlock:
			out = append(out, gpu.Access{Slot: p.slot})
		case len(l.runs) > maxRuns:
			begin, last := l.runs[0], l.runs[len(l.runs)-1]
			from, to := begin.at+p.first*begin.row, last.at+(p.first+n)*last.row
			out = append(out, gpu.Access{Slot: p.slot, Offset: int64(from), Bytes: int64(to - from)})
		default:
			for _, r := range l.runs {
				out = append(out, gpu.Access{Slot: p.slot, Offset: int64(r.at + p.first*r.row),
					Bytes: int64(n * r.row)})
			}
		}
	}
	return out
}
