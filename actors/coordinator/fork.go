package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// MaxForks bounds the sequences that one Fork makes, all its steps together.
const MaxForks = 1 << 16

// fork serves Fork: new sequences share all pages of others.
//
//	start ─┬────────────────────────────────────────▶ claiming ─▶ answer
//	       │                                          ▲  pools add the references
//	       │ recurrent layers                         │  of the new sequences
//	       └─▶ taking ─▶ copying ───▶ applying ───────┘
//	           working   they get     the tree learns
//	           pages     the state    of victims
//
// The pages of blocks are copied when one of the sequences writes to them. A working
// page cannot wait for that: each kernel writes it. So a fork of a model with recurrent
// layers takes pages, and may find too few. The new sequences are made when they have
// all their pages.
type fork struct {
	*shared
	stages[fork]
	items []forkItem
	taken []int // by pool, pages of the steps decided about before
}

// forkItem is a step that is right. The operations that take its working pages have its index, in
// each state pool, and so has its question in the Move. They are valid until the batches are
// emptied for the references; from then on the pages are read from result.Working.
type forkItem struct {
	sequence *sequence.Sequence
	result   *messages.ForkResult
	n        int // new sequences
}

// start makes the forks of the steps that are right.
func (f *fork) start(request any) {
	m := request.(*messages.Fork)
	m.Err, m.Results = nil, resized(m.Results, len(m.Steps))
	f.items, f.taken = f.items[:0], make([]int, f.states.end)
	f.out.reset()
	made := 0
	for i := range m.Steps {
		step, result := &m.Steps[i], &m.Results[i]
		*result = messages.ForkResult{Sequence: step.Sequence, Forks: result.Forks[:0]}
		s, err := f.sequences.FindOnce(step.Sequence, f.kernel.stamp)
		if err == nil {
			// made has the forks of right steps only: a step that is refused uses nothing of
			// the bound.
			err = validateFork(s, step.Count, made)
		}
		if err == nil {
			err = f.take(s, step.Count)
		}
		if result.Err = err; err == nil {
			made += step.Count
			s.Touched = f.kernel.stamp
			f.items = append(f.items, forkItem{sequence: s, result: result, n: step.Count})
		}
	}
	switch {
	// Every step was refused, and nothing has changed.
	case made == 0:
		f.kernel.reply()
	// Without states there is nothing to wait for: the forks are complete at once.
	case f.states.empty():
		f.claim()
	default:
		f.wait(f, "fork: taking", (*fork).copy)
		f.out.pools.send()
	}
}

// take takes the working pages of a step, or refuses one that would find too few. Without recurrent
// layers a fork takes no page, so it cannot fail. Pages of blocks are shared until a sequence
// writes to them, so only the step that writes can lack one.
func (f *fork) take(s *sequence.Sequence, n int) error {
	for p := f.states.first; p < f.states.end; p++ {
		if refusal := f.pressure.lack(p, n, f.counts.available(p)-f.taken[p], n); refusal != nil {
			f.pressure.noteRefusal(refusal)
			return refusal
		}
	}
	for p := f.states.first; p < f.states.end; p++ {
		// One operation for all forks of the step: the pool answers their pages in one list.
		f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.Tenant})
		// The pools answer for all steps at once, so until then the steps count against each
		// other here.
		f.taken[p] += n
	}
	return nil
}

// copy copies the state of each sequence into the working pages of its forks.
func (f *fork) copy() {
	f.out.pools.received()
	f.out.move.victims(&f.out.pools)
	for i := range f.items {
		it := &f.items[i]
		it.result.Working = make([][]messages.PageID, it.n)
		f.out.move.ask(f.states.end, func(p int) (_, write []messages.PageID) {
			if !f.states.has(p) {
				return nil, nil
			}
			// The own page must not be written to before the copies have read it.
			own := it.sequence.StateAfter(p, it.sequence.Computed())
			write = append(write, own)
			f.stats.allocated(p, it.n)
			for k, page := range f.out.pools.op(p, i).Pages {
				// The working page is one state and has no tokens: it is copied whole. The
				// lists of the answer are by PoolID, with NoPage for pools that have no
				// working page.
				f.out.move.copy(p, protocol.PageCopy{From: protocol.OnDevice(own), Block: protocol.NoBlock,
					To: page, Tokens: f.config.TokensPerBlock})
				for len(it.result.Working[k]) < p {
					it.result.Working[k] = append(it.result.Working[k], messages.NoPage)
				}
				it.result.Working[k] = append(it.result.Working[k], page)
				write = append(write, page)
			}
			return nil, write
		})
	}
	f.wait(f, "fork: copying", (*fork).copied)
	f.out.move.send()
}

// copied tells the tree of victims, and refuses the steps of which a copy failed. Copies of the
// other steps are good, so each step is refused by itself.
func (f *fork) copied() {
	f.out.moved()
	for i := range f.items {
		it := &f.items[i]
		// A refused step has tickets, too: if one of two copies failed, the other still reads
		// the page of the sequence, which goes on and will write it.
		it.result.Ready = slices.Clone(f.out.move.tickets(i))
		for p := f.states.first; p < f.states.end; p++ {
			for _, page := range f.out.pools.op(p, i).Pages {
				if f.out.move.copyFailed(p, page) {
					it.result.Err = refusals.New(messages.ErrInternal,
						"a copy into the working page of a fork failed")
				}
			}
		}
	}
	f.wait(f, "fork: applying", (*fork).applied)
	f.out.apply()
}

// claim makes the forks, and adds their references to the pages that they share. A step of
// which a copy failed makes none of its forks, since a host asks for a number of them and not
// for some.
func (f *fork) claim() {
	for i := range f.items {
		it := &f.items[i]
		if it.result.Err != nil {
			f.dropWorking(it)
			continue
		}
		f.forkOne(it)
	}
	f.wait(f, "fork: claiming", (*fork).end)
	f.out.followUp()
}

// dropWorking gives back the pages of a step of which a copy failed. They cache nothing, so
// they are free as soon as they are dropped.
func (f *fork) dropWorking(it *forkItem) {
	for p := f.states.first; p < f.states.end; p++ {
		var pages []messages.PageID
		for _, working := range it.result.Working {
			pages = append(pages, working[p])
		}
		f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages,
			Use: it.sequence.Use})
	}
	it.result.Working = nil
}

// forkOne makes the forks of a sequence. Nothing can refuse it any more: all working pages are
// there, and references need no page.
func (f *fork) forkOne(it *forkItem) {
	s := it.sequence
	for k := range it.n {
		made := f.sequences.Open(f.kernel.stamp)
		s.Fork(made)
		made.Use = f.uses.next()
		// The reference with which the page was taken is the fork's from now on.
		for p := f.states.first; p < f.states.end; p++ {
			made.SetTable(p, append(made.Table(p), it.result.Working[k][p]))
		}
		it.result.Forks = append(it.result.Forks, made.ID())
	}
	for p := range f.config.Pools {
		if !f.states.has(p) {
			// The sequence and n forks hold each page; claimBeams leaves out the first of them,
			// whose reference is there.
			f.out.pools.claimBeams(p, s.Table(p), it.n+1)
		}
	}
}

// validateFork checks a fork into n sequences, after others of the same request have
// made some.
func validateFork(s *sequence.Sequence, n, made int) error {
	switch {
	// The bound is of the whole request: it keeps one request from growing the engine
	// without limit.
	case n < 1 || n > MaxForks-made:
		return refusals.New(messages.ErrBadRequest, "fork into %d sequences: 1 … %d are allowed", n,
			MaxForks-made)
	// Also of a prompt whose further beams come with the end of its last chunk.
	case s.Beams() > 1:
		return refusals.New(messages.ErrNotSupported, "fork and beam_width above 1 exclude each other")
	// Until then a prompt in chunks has a reserve, which covers one sequence and not its forks;
	// and the input of an encoder is not in its pages.
	case !s.PromptComputed():
		return refusals.New(messages.ErrBadRequest,
			"fork of a prompt of %d tokens of which %d are computed", s.Prompt, s.Computed())
	}
	return nil
}

// applied goes on when the tree knows the victims.
func (f *fork) applied() {
	f.out.applied()
	f.claim()
}

// end answers.
func (f *fork) end() {
	f.out.followed()
	f.kernel.reply()
}
