package oracle

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// sequence is a running sequence.
type sequence struct {
	id        messages.SequenceID
	namespace messages.Namespace
	session   string
	retention *messages.Retention
	noStore   bool            // an invalidation named it: it stores nothing more
	settled   map[string]bool // blocks that had their retention from it

	prompt   int // tokens
	reused   int // blocks reused whole
	chunk    int // tokens; 0: no chunked prefill
	computed int
	last     use // of the request that touched it last

	wanted []int       // positions of checkpoints
	keys   [][]symbol  // by beam: all tokens
	tables [][][]*page // by pool, beam, block; nil: the window has passed; of states the working page alone
}

func (s *sequence) length() int { return len(s.keys[0]) }
func (s *sequence) width() int  { return len(s.keys) }

// prefilling reports whether the prompt is not computed yet.
func (s *sequence) prefilling() bool { return s.computed < s.prompt }

// coveredByReserve reports whether the sequence's reserve stands for what it has in pool
// p at a block index: the pages of a chunked prefill's own, not those it
// reused whole.
func (s *sequence) coveredByReserve(p *pool, index int) bool {
	return s.chunk > 0 && p.limited() && s.prefilling() && index >= s.reused
}

// target is how far the next commit may reach: the last block boundary within
// computed + chunk, never past the prompt.
func (o *Oracle) target(s *sequence) int {
	from := s.computed / o.tpb * o.tpb
	if s.chunk == 0 || s.chunk >= s.prompt-from {
		return s.prompt
	}
	return from + s.chunk
}

// reserve is what a chunked prefill of so many blocks not reused whole reserves
// in a limited pool.
func (o *Oracle) reserve(p *pool, chunk, blocks int) int {
	return min(blocks, ceil(p.Window-1, o.tpb)+chunk/o.tpb+o.sinkBlocks(p))
}

// running looks a sequence up.
func (o *Oracle) running(id messages.SequenceID) (*sequence, error) {
	for _, s := range o.sequences {
		if s.id == id {
			return s, nil
		}
	}
	return nil, refusals.New(messages.ErrUnknownSequence, "sequence %v is not running", id)
}

// tablesOf numbers the pages of a sequence.
func tablesOf(s *sequence) messages.Tables {
	var all messages.Tables
	for _, beams := range s.tables {
		var ofPool [][]messages.PageID
		for _, table := range beams {
			numbers := []messages.PageID{}
			for _, pg := range table {
				numbers = append(numbers, numberOf(pg))
			}
			ofPool = append(ofPool, numbers)
		}
		all = append(all, ofPool)
	}
	return all
}

func numberOf(pg *page) messages.PageID {
	if pg == nil {
		return messages.NoPage
	}
	return messages.PageID(pg.number)
}

// TablesOf reads the page tables of a sequence.
func (o *Oracle) TablesOf(_ context.Context, id messages.SequenceID) (messages.Tables, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	s, err := o.running(id)
	if err != nil {
		return nil, err
	}
	return tablesOf(s), nil
}

// drop ends the reference that a table entry is, leaving a use.
func (o *Oracle) drop(p *pool, table []*page, index int, u use) {
	o.leave(p, table[index], u)
	table[index] = nil
}

// leave notes a use of what the page caches.
func (o *Oracle) leave(p *pool, pg *page, u use) {
	if pg != nil && pg.block != nil {
		o.spend(pg.block.at[p.id], u)
	}
}

// RewindOne drops the last tokens of a sequence.
func (o *Oracle) RewindOne(_ context.Context, id messages.SequenceID, tokens int) error {
	if err := o.begin(); err != nil {
		return err
	}
	if tokens < 1 {
		return bad("rewind of %d tokens", tokens)
	}
	s, err := o.running(id)
	if err != nil {
		return err
	}
	if s.width() > 1 {
		return refusals.New(messages.ErrNotSupported, "rewind with beam_width above 1")
	}
	if generated := s.length() - s.prompt; tokens > generated {
		return bad("rewind of %d tokens: %d are generated", tokens, generated)
	}
	length := s.length() - tokens
	if o.recurrent() && length < s.computed {
		return refusals.New(messages.ErrNotSupported, "rewind below the %d computed tokens with recurrent layers", s.computed)
	}
	computed := min(s.computed, length)
	for _, p := range o.attentionPools() {
		for index, pg := range s.tables[p.id][0] {
			if pg == nil && o.needs(p, index, computed) {
				return refusals.New(messages.ErrNotSupported, "rewind of %d tokens needs a page that left the window of pool %s", tokens, p.Name)
			}
		}
	}
	u := use{request: o.request}
	s.last = u
	for _, p := range o.attentionPools() {
		table := s.tables[p.id][0]
		for index := len(table) - 1; index >= ceil(length, o.tpb); index-- {
			o.drop(p, table, index, u)
		}
		s.tables[p.id][0] = table[:ceil(length, o.tpb)]
	}
	s.keys[0] = s.keys[0][:length]
	s.computed = computed
	return nil
}

// Fork makes new sequences that share all pages of others, step by step.
func (o *Oracle) Fork(_ context.Context, steps []messages.ForkStep) ([]messages.ForkResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var results []messages.ForkResult
	place := 0
	for _, step := range steps {
		ids, err := fork(o, step.Sequence, step.Count, place)
		results = append(results, messages.ForkResult{Sequence: step.Sequence, Forks: ids, Err: err})
		place += len(ids)
	}
	return results, nil
}

// fork makes new sequences that share all pages of one; so many have been made before
// in the request.
func fork(o *Oracle, id messages.SequenceID, n, before int) ([]messages.SequenceID, error) {
	if n < 1 {
		return nil, bad("fork into %d sequences", n)
	}
	s, err := o.running(id)
	if err != nil {
		return nil, err
	}
	if s.width() > 1 {
		return nil, refusals.New(messages.ErrNotSupported, "fork with beam_width above 1")
	}
	if s.prefilling() {
		return nil, bad("fork before the prompt is computed")
	}
	for _, p := range o.statePools() {
		if available := max(0, o.available(p, nil)); n > available {
			return nil, refusals.OutOfPages(p.Name, n, available)
		}
	}
	var ids []messages.SequenceID
	for i := range n {
		f := *s
		o.lastSequence++
		f.id = o.lastSequence
		f.last = use{o.request, before + i}
		f.settled = map[string]bool{}
		for k := range s.settled {
			f.settled[k] = true
		}
		f.keys = [][]symbol{slices.Clone(s.keys[0])}
		f.tables = nil
		for _, beams := range s.tables {
			f.tables = append(f.tables, [][]*page{slices.Clone(beams[0])})
		}
		for _, p := range o.statePools() {
			f.tables[p.id][0][0] = o.take(p, f.namespace.Salt)
		}
		o.sequences = append(o.sequences, &f)
		ids = append(ids, f.id)
	}
	return ids, nil
}

// Release ends sequences: what they computed and still hold is offered once
// more, then their pages are dropped.
func (o *Oracle) Release(_ context.Context, steps []messages.ReleaseStep) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var results []messages.StepResult
	for i, step := range steps {
		r := messages.StepResult{Sequence: step.Sequence}
		if s, err := o.running(step.Sequence); err != nil {
			r.Err = err
		} else {
			if !step.Discard {
				o.store(s, span{0, s.computed}, atRelease, nil)
				o.handOver(s)
			}
			for _, p := range o.pool {
				for _, table := range s.tables[p.id] {
					for index := len(table) - 1; index >= 0; index-- {
						o.drop(p, table, index, use{o.request, i})
					}
				}
			}
			o.sequences = slices.DeleteFunc(o.sequences, func(t *sequence) bool { return t == s })
		}
		results = append(results, r)
	}
	return results, nil
}
