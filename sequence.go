package kvactor

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Sequence is one running sequence: a prompt and what is generated behind it. It keeps a
// copy of its page tables, which follows every call of this package. Make it by Admit or
// Fork, and end it by Release. Its methods that take a context are those of Engine for a
// batch of one; a host with many sequences makes one call of Engine for all of them.
type Sequence struct {
	engine   *Engine
	id       SequenceID
	admitted Admitted // without Tables
	slot     int32
	prompt   int
	length   int // tokens of each beam
	computed int
	tokens   *prompt   // nil: it has ended
	appended [][]Token // by beam
	tables   Tables
	ready    []Ticket
	until    []int // by ticket: a commit of so many tokens shows that a kernel has waited
}

// prompt is a copy of a prompt's tokens, which forks share. It is used again after the last of
// them: prompts are long, and garbage of their size makes the collector run often.
type prompt struct {
	tokens  []Token
	holders int // sequences; under Engine.mu
}

// promptOf copies the tokens of a prompt, for one sequence.
func (e *Engine) promptOf(tokens []Token) *prompt {
	p := recordOf[prompt](&e.prompts)
	p.tokens, p.holders = append(p.tokens[:0], tokens...), 1
	return p
}

// Admission is one request of AdmitBatch, and its answer.
type Admission struct {
	Request AdmitRequest

	Sequence *Sequence // set by AdmitBatch; nil with Err
	Err      error
}

// Admit starts a sequence: it finds the longest reusable prefix of the prompt and takes pages for
// the other tokens. The last token of the prompt is never reused, so there is always one to
// compute. The cost grows with the prompt as that of a comparison of its tokens in memory. Errors
// are ErrBadRequest and ErrNotSupported, which Validate finds as well, ErrTooLong, and
// ErrOutOfPages, which names the pool.
//
// With StoredOnly the sequence is what is stored of the prompt: a host reads the pages, and
// releases the sequence or appends to it. If nothing is stored, Reused is 0 and there is nothing to
// release.
func (e *Engine) Admit(ctx context.Context, r AdmitRequest) (*Sequence, error) {
	admitted, err := e.below.Admit(ctx, r)
	if err != nil {
		return nil, err
	}
	return e.start(&r, &admitted), nil
}

// AdmitBatch starts several sequences in one message. It is not first in, first out: all
// of them claim what they match before any takes a new page, so that none evicts what
// another reuses. One that would fit alone may therefore be refused because of a later
// one.
func (e *Engine) AdmitBatch(ctx context.Context, batch []Admission) error {
	requests := make([]AdmitRequest, len(batch))
	for i := range batch {
		requests[i], batch[i].Sequence, batch[i].Err = batch[i].Request, nil, nil
	}
	results, err := e.below.AdmitBatch(ctx, requests)
	if err != nil {
		for i := range batch {
			batch[i].Err = err
		}
		return err
	}
	var all joined
	for i := range batch {
		if batch[i].Err = results[i].Err; batch[i].Err == nil {
			batch[i].Sequence = e.start(&batch[i].Request, &results[i])
		}
		all.add(batch[i].Err)
	}
	return all.err()
}

// start makes the handle of a sequence that has been admitted or has come.
func (e *Engine) start(r *AdmitRequest, a *Admitted) *Sequence {
	length := len(r.Tokens)
	if r.StoredOnly {
		length = a.ReusedTokens
	}
	s := &Sequence{
		engine: e, id: a.Sequence, admitted: *a, prompt: length, length: length, computed: a.ReusedTokens,
		tables: a.Tables,
		tokens: e.promptOf(r.Tokens[:length]), appended: make([][]Token, max(1, r.BeamWidth)),
	}
	s.await(a.Ready, 0)
	s.admitted.Tables, s.admitted.Ready = nil, nil
	if a.Cross != nil {
		s.await(a.Cross.Ready, 0)
	}
	if length == 0 { // nothing is stored: there is nothing to hold
		return s
	}
	e.mu.Lock()
	e.enter(s)
	e.mu.Unlock()
	return s
}

// ID is the engine's handle of the sequence.
func (s *Sequence) ID() SequenceID { return s.id }

// Admitted says what the admission has reused, without its tables and tickets. That of a
// fork is its parent's.
func (s *Sequence) Admitted() *Admitted { return &s.admitted }

// Reused is the number of leading tokens whose keys and values need not be computed.
func (s *Sequence) Reused() int { return s.admitted.ReusedTokens }

// Slot is an index for what the host keeps for each sequence. No other running sequence has the
// same one, and it is below the largest number of sequences that ever ran at once. A release gives
// it to the next sequence, whose kernels must run after those of this one.
func (s *Sequence) Slot() int32 { return s.slot }

// Prompt is the number of tokens of the prompt.
func (s *Sequence) Prompt() int { return s.prompt }

// Len is the number of tokens, the generated ones included.
func (s *Sequence) Len() int { return s.length }

// Tokens are those of a beam, the prompt's first: a new slice at each call, nil after the release.
func (s *Sequence) Tokens(beam int) []Token {
	if s.tokens == nil {
		return nil
	}
	return slices.Concat(s.tokens.tokens, s.appended[beam])
}

// Computed is the number of leading tokens that are reused or committed.
func (s *Sequence) Computed() int { return s.computed }

// Tables are the page tables, as [pool][beam][block]. They belong to the sequence, and
// calls change them.
func (s *Sequence) Tables() Tables { return s.tables }

// Ready returns the tickets that a kernel must wait for before it uses the sequence's pages. Append
// adds tickets, and a commit removes those that the kernel which computed its tokens has waited
// for: the tickets of an append stay until its tokens are committed. The slice is valid until the
// next call.
func (s *Sequence) Ready() []Ticket { return s.ready }

// Append adds sampled tokens and takes pages for them. With ErrOutOfPages the sequence is
// as it was.
func (s *Sequence) Append(ctx context.Context, tokens ...Token) error {
	return s.engine.Append(ctx, []Step{{Sequence: s, Tokens: tokens}})
}

// Commit says that the first computed tokens are in the pages, or will be when after has
// passed. Other sequences can reuse the blocks that this completes.
func (s *Sequence) Commit(ctx context.Context, computed int, after Ticket) error {
	return s.engine.Commit(ctx, []Step{{Sequence: s, Computed: computed, After: after}})
}

// Rewind drops the last tokens, such as rejected drafts; see Engine.Rewind for the order
// with kernels.
func (s *Sequence) Rewind(ctx context.Context, tokens int) error {
	return s.engine.Rewind(ctx, []Step{{Sequence: s, Rewind: tokens}})
}

// Release ends the sequence. What it has committed stays reusable until it is evicted.
// The host's kernels may use the pages until after has passed.
func (s *Sequence) Release(ctx context.Context, after Ticket) error {
	return s.engine.Release(ctx, []Step{{Sequence: s, After: after}})
}

// Fork starts n sequences that share all pages of this one; each copies a page when it
// first writes to it.
func (s *Sequence) Fork(ctx context.Context, n int) ([]*Sequence, error) {
	steps := []Step{{Sequence: s, Forks: n}}
	err := s.engine.Fork(ctx, steps)
	return steps[0].Forked, err
}

// forks makes the handles of the forks of a sequence. The caller holds e.mu.
func (e *Engine) forks(s *Sequence, r *messages.ForkResult) []*Sequence {
	list := make([]*Sequence, len(r.Forks))
	for i, id := range r.Forks {
		f := *s
		f.id, f.tables = id, make(Tables, len(s.tables))
		f.ready, f.until = slices.Clone(s.ready), slices.Clone(s.until)
		f.appended = [][]Token{slices.Clone(s.appended[0])}
		f.tokens.holders++
		for p, beams := range s.tables {
			f.tables[p] = make([][]PageID, len(beams))
			for b, table := range beams {
				f.tables[p][b] = slices.Clone(table)
			}
		}
		// Pages of recurrent states are not shared, and a fork has none for drafts.
		if r.Working != nil {
			for p, page := range r.Working[i] {
				if page != messages.NoPage {
					f.tables[p][0] = []PageID{page}
				}
			}
		}
		list[i] = &f
		e.enter(&f)
	}
	return list
}

// Refresh reads the page tables of sequences again. Only a host that also sends requests to Actors
// needs it: the tables do not follow those by themselves.
func (e *Engine) Refresh(ctx context.Context, sequences ...*Sequence) error {
	ids := make([]SequenceID, len(sequences))
	for i, s := range sequences {
		ids[i] = s.id
	}
	results, err := e.below.Tables(ctx, ids)
	if err != nil {
		return err
	}
	var all joined
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range sequences {
		if all.addOf(s, results[i].Err); results[i].Err == nil {
			s.tables = results[i].Tables
		}
	}
	return all.err()
}

// applyPlaced writes the pages of a step into the tables.
func (s *Sequence) applyPlaced(placed []PlacedPage) {
	for _, at := range placed {
		table := &s.tables[at.Pool][at.Beam]
		if at.Block < len(*table) {
			(*table)[at.Block] = at.Page
		} else {
			*table = append(*table, at.Page)
		}
	}
}

// cutStates leaves so many entries of the tables of states.
func (s *Sequence) cutStates(entries int) {
	for p := range s.tables {
		if s.engine.pools[p].Kind == windows.KindState && len(s.tables[p][0]) > entries {
			s.tables[p][0] = s.tables[p][0][:entries]
		}
	}
}

// placeChunk adds the pages of a prompt's next chunk to the tables of all beams, which share
// the prompt.
func (s *Sequence) placeChunk(placed []PlacedPage) {
	for _, at := range placed {
		for b := range s.tables[at.Pool] {
			s.tables[at.Pool][b] = append(s.tables[at.Pool][b], at.Page)
		}
	}
}

// follow makes each beam a copy of its parent. The cross pool has one table for all.
func (s *Sequence) follow(beams []BeamStep) {
	if len(beams) == 0 {
		return
	}
	for p, old := range s.tables {
		if len(old) != len(beams) {
			continue
		}
		s.tables[p] = make([][]PageID, len(old))
		for i, b := range beams {
			s.tables[p][i] = slices.Clone(old[b.Parent])
		}
	}
}

// extend adds the tokens of a step.
func (s *Sequence) extend(tokens []Token, beams []BeamStep) {
	s.length += max(len(tokens), min(1, len(beams)))
	if len(beams) == 0 {
		s.appended[0] = append(s.appended[0], tokens...)
		return
	}
	old := s.appended
	s.appended = make([][]Token, len(beams))
	for i, b := range beams {
		s.appended[i] = append(slices.Clone(old[b.Parent]), b.Token)
	}
}

// await adds tickets. They stay until a commit of so many tokens, and at least until the next.
func (s *Sequence) await(tickets []Ticket, until int) {
	for _, t := range tickets {
		s.ready, s.until = append(s.ready, t), append(s.until, until)
	}
}

// commit notes that tokens are computed: the kernel that did has waited for Ready, and
// blocks that no later token attends to are not the sequence's any more.
func (s *Sequence) commit(computed int) {
	if computed <= s.computed {
		return
	}
	s.computed = computed
	n := 0
	for i, t := range s.ready {
		if s.until[i] > computed {
			s.ready[n], s.until[n] = t, s.until[i]
			n++
		}
	}
	s.ready, s.until = s.ready[:n], s.until[:n]
	for p := range s.tables {
		pool := &s.engine.pools[p]
		if pool.Kind != windows.KindAttention || pool.Full() {
			continue
		}
		for _, table := range s.tables[p] {
			for b := pool.SinkBlocks(); b < min(pool.FirstKept(computed), len(table)); b++ {
				table[b] = NoPage
			}
		}
	}
}

// shorten drops the last tokens and the blocks that hold none of the others.
func (s *Sequence) shorten(tokens int) {
	s.length -= tokens
	s.appended[0] = s.appended[0][:s.length-s.prompt]
	s.computed = min(s.computed, s.length)
	for i := range s.until {
		s.until[i] = min(s.until[i], s.length)
	}
	for p := range s.tables {
		if s.engine.pools[p].Kind != windows.KindAttention {
			continue
		}
		tpb := s.engine.pools[p].TokensPerBlock
		for b, table := range s.tables[p] {
			s.tables[p][b] = table[:min(len(table), (s.length+tpb-1)/tpb)]
		}
	}
}
