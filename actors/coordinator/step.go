package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// stepBatch is the parts of a Commit or an Append, one for each sequence.
//
// shares and taken stand for what the steps decided about so far will do to the pools, which
// have not been asked yet: of pool p a step may take counts.available(p) − taken[p] pages. Both
// count only within the request.
type stepBatch struct {
	*shared
	items []step
	// shares says who else holds a page that a step may write to: by pool, of the
	// pages that were asked about.
	// A step that is decided about changes them for the steps behind it, as the pools will when
	// they serve the operations in the same order.
	shares []map[messages.PageID]protocol.Share
	// after has the shares that the step which is decided about will change, as they are behind it.
	after []map[messages.PageID]protocol.Share
	taken []int // by pool: pages of the steps decided about before
}

// step is the part of one sequence.
//
// computed is 0 for a step that commits nothing, and becomes 0 when the step is refused. store
// and input are indexes into the change of the tree, and hold until the change is used again.
// extended is set when the sequence has the step's tokens: only then has an undo anything to
// take back.
type step struct {
	sequence *sequence.Sequence
	result   *messages.StepResult
	request  *messages.AppendStep // nil in a Commit
	computed int                  // tokens to commit to; 0: none
	after    messages.Ticket
	store    int          // index of what is offered to the tree, −1: none
	input    int          // index of the encoder's input in the same, −1: none
	query    int          // index of its question in the Move, −1: none
	first    int          // first block that may be written to
	chosen   []int        // of an Append, by beam: how many beams go on from it
	use      protocol.Use // that the sequence had before
	refused  bool
	extended bool // the sequence has the step's tokens and pages
	// stored and inputCursor are what the tree has answered to what store and input offer.
	stored      sequence.Stored
	inputCursor protocol.Cursor
	pools       []stepPages
}

// stepPages is what a step takes in one pool. The tables of all beams have the length before:
// beams differ in their pages and tokens and have equally many of them.
type stepPages struct {
	copies []pageRewrite     // copies on write
	copyOp int               // the operation that takes their pages, −1: none
	fresh  int               // the operation that takes new pages, −1: none
	begun  []messages.PageID // array of what that answers in an Append
	before int               // length of the table before the step
	// the tables before it, by beam; nil: they follow from copies and before
	old  [][]messages.PageID
	next []messages.PageID // the table with the pages of the next chunk; nil: it takes none
}

func newStepBatch(parts *shared) *stepBatch {
	n := len(parts.config.Pools)
	b := &stepBatch{shared: parts, taken: make([]int, n),
		shares: make([]map[messages.PageID]protocol.Share, n),
		after:  make([]map[messages.PageID]protocol.Share, n)}
	for p := range b.shares {
		b.shares[p] = map[messages.PageID]protocol.Share{}
		b.after[p] = map[messages.PageID]protocol.Share{}
	}
	return b
}

// reset empties the batch.
func (b *stepBatch) reset() {
	b.items = b.items[:0]
	clear(b.taken)
	for p := range b.shares {
		clear(b.shares[p])
	}
}

// add adds the part of one sequence. The item is complete before the sequence is
// touched.
func (b *stepBatch) add(s *sequence.Sequence, result *messages.StepResult) *step {
	it := lengthen(&b.items)
	// The slices of an earlier item in this place are used again.
	pools := it.pools
	if pools == nil {
		pools = make([]stepPages, len(b.config.Pools))
	}
	// before is the length of the table now: undo and takeBack cut it back to that.
	for p := range pools {
		pools[p] = stepPages{copies: pools[p].copies[:0], copyOp: -1, fresh: -1,
			begun: pools[p].begun[:0], before: len(s.Table(p))}
	}
	*it = step{sequence: s, result: result, store: -1, input: -1, query: -1, use: s.Use,
		pools: pools, chosen: it.chosen}
	s.Touched = b.kernel.stamp
	return it
}

// enter adds a step whose values are valid for its sequence; else it refuses the step and returns
// nil. A step that names a sequence for the second time in one request is refused.
//
// The values are checked before anything of the sequence changes: a step that is refused leaves
// its sequence as it was, and the others go on. The kernel that it names is noted all the
// same: it runs on the pages that the sequence holds, lost or not, and the next owner of
// those must wait for it.
func (b *stepBatch) enter(
	id messages.SequenceID, after messages.Ticket, result *messages.StepResult,
	validate func(*sequence.Sequence) error,
) *step {
	result.Sequence = id
	s, err := b.sequences.FindOnce(id, b.kernel.stamp)
	if err == nil {
		err = validate(s)
	}
	if err != nil {
		result.Err = err
		b.stats.RefusedSteps.Note(err)
		b.sequences.NoteKernel(id, after)
		return nil
	}
	it := b.add(s, result)
	it.after = after
	s.SetAfter(after)
	return it
}

// emptyResults gives n empty results and uses the arrays of the list again.
func emptyResults(list []messages.StepResult, n, pools int) []messages.StepResult {
	// Every array of an earlier answer is used again, also those inside of a result: a step of
	// a hundred sequences allocates nothing.
	list = resized(list, n)
	for i := range list {
		list[i] = messages.StepResult{
			NewPages: sequence.Reopen(list[i].NewPages[:0], pools), Placed: list[i].Placed[:0],
			Ready: list[i].Ready[:0],
		}
	}
	return list
}

// noteNew records the pages of new blocks of a beam, from block first on.
func (it *step) noteNew(p, beam, first int, pages []messages.PageID) {
	for i, page := range pages {
		it.notePage(messages.PlacedPage{Pool: messages.PoolID(p), Beam: beam, Block: first + i,
			Page: page, Replaced: messages.NoPage})
	}
}

// notePage records a page that a step has taken. NewPages has the pages alone, in the order in
// which they were taken; Placed says where each is, for hosts that keep tables of their own.
func (it *step) notePage(page messages.PlacedPage) {
	it.result.NewPages[page.Pool] = append(it.result.NewPages[page.Pool], page.Page)
	it.result.Placed = append(it.result.Placed, page)
}

// pagesIn counts the pages of a table.
func pagesIn(table []messages.PageID) (n int) {
	for _, page := range table {
		if page != messages.NoPage {
			n++
		}
	}
	return n
}

// validateCommit checks that the first n tokens may be committed, of length.
func (c *Config) validateCommit(s *sequence.Sequence, n, length int) error {
	// The first case that holds is the refusal; the order goes from what can never be right
	// to what is only too early.
	computed, prompt := int(s.Computed()), int(s.Prompt)
	switch {
	case n < computed:
		return refusals.New(messages.ErrBadRequest, "commit of %d tokens: %d are computed already", n,
			computed)
	case n > length:
		return refusals.New(messages.ErrBadRequest, "commit of %d tokens: the sequence has %d", n, length)
	// Behind the prompt any length may be committed: tokens come one by one.
	case n == computed || computed >= prompt:
		return nil
	// The pages behind the chunk have not been taken yet.
	case s.Chunked() && n > int(s.ChunkEnd()):
		return refusals.New(messages.ErrBadRequest, "commit of %d tokens: the chunk ends at %d", n,
			s.ChunkEnd())
	// A block of the prompt is stored when it is whole; half of one would be stored with the
	// next commit, under a retention that the first one has spent.
	case n < prompt && n%c.TokensPerBlock != 0:
		return refusals.New(messages.ErrBadRequest,
			"commit of %d tokens ends off a block boundary before the prompt's end at %d", n, prompt)
	}
	return nil
}

// copyTickets copies what the pages of the steps wait for into their answers. Tickets of
// several Moves in one request add up, since its pages may wait for copies of each of them.
func (b *stepBatch) copyTickets() {
	for i := range b.items {
		it := &b.items[i]
		// The question is answered once; a second call copies nothing.
		if it.query >= 0 {
			for _, t := range b.out.move.tickets(it.query) {
				it.result.Ready = protocol.AddTicket(it.result.Ready, t)
			}
			it.query = -1
		}
	}
}

// validate checks one step against its sequence.
func (e *extension) validate(s *sequence.Sequence, r *messages.AppendStep) error {
	// A step of beams adds one token to each beam, whichever parents they follow.
	added := len(r.Tokens)
	if s.Width() > 1 {
		added = min(1, len(r.Beams))
	}
	// What is refused up to the Touch below does not count as the step of its sequence: another
	// step of the request may be the right one.
	if err := validateTokens(s, r); err != nil {
		return err
	}
	if r.DraftStates < 0 || r.DraftStates > 0 && e.states.empty() {
		return refusals.New(messages.ErrBadRequest, "%d draft states for a model with %d state pools",
			r.DraftStates, e.states.end-e.states.first)
	}
	// Tokens are sampled from the logits of the prompt's last token, so they cannot come
	// before it is computed. Pages of later chunks are not there yet, either.
	if !s.PromptComputed() {
		return refusals.New(messages.ErrBadRequest,
			"append to a prompt of %d tokens of which %d are computed", s.Prompt, s.Computed())
	}
	s.Touched = e.kernel.stamp // its values are right: a second step is one too many
	// Checked here and not with the tokens: the bound depends on what the sequence has.
	length := int(s.Length()) + added
	if length > e.config.MaxSeqLen {
		return refusals.New(messages.ErrTooLong, "a sequence of %d tokens is over max_seq_len %d", length,
			e.config.MaxSeqLen)
	}
	if r.Computed != 0 {
		if err := e.config.validateCommit(s, r.Computed, length); err != nil {
			return err
		}
	}
	// One more than the pages of drafts: the state after the last goes to the working page.
	if n := length - max(int(s.Computed()), r.Computed); r.DraftStates > 0 && n > r.DraftStates+1 {
		return refusals.New(messages.ErrBadRequest, "%d draft states for %d tokens that are not computed",
			r.DraftStates, n)
	}
	return nil
}

// validateTokens checks the tokens of a step, or its beams. Negative numbers
// are refused because the tree uses them for tokens that items cover.
func validateTokens(s *sequence.Sequence, r *messages.AppendStep) error {
	if s.Width() > 1 {
		return validateBeams(s, r)
	}
	if len(r.Beams) > 0 {
		return refusals.New(messages.ErrBadRequest, "beams for a sequence of beam width 1")
	}
	if len(r.Tokens) == 0 {
		return refusals.New(messages.ErrBadRequest, "tokens is empty")
	}
	if i := firstNegative(r.Tokens); i >= 0 {
		return refusals.New(messages.ErrBadRequest, "token %d is not in 0 … 2³¹−1", r.Tokens[i])
	}
	return nil
}
