package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// importing serves BeginImport: a sequence gets pages for tokens whose contents come from
// another engine.
//
//	start ─▶ locating ─▶ claiming ─▶ taking ─▶ moving ─▶ applying ─▶ following ─▶ answer
//	           the tree     pages       │ pages   victims   the tree learns of
//	           says what    that are    ▼                   victims
//	           is there     there    refusing ─▶ answer
//	                                 claims are
//	                                 taken back
//
// Pages that the device has are shared, whether a match would reach them or not: what the
// tree knows under these tokens has the contents that come. Pages in host memory are not
// brought in, because their contents come anyway. The pages that are taken are written by
// later requests, and a commit stores them; until then nothing but this sequence knows them.
// So whatever goes wrong later, the release of the sequence leaves no trace of it but what was
// evicted for its pages.
//
// One record of this type serves all imports, one after the other: a round has one
// request. match and inTree are lent to the tree until locating is over; inTree is nil when
// the tree was not asked, and onDevice then finds nothing.
type importing struct {
	*shared
	stages[importing]
	request  *protocol.BeginImport
	sequence *sequence.Sequence
	carried  []protocol.PagePlace
	match    *protocol.Match
	inTree   *protocol.BlocksInTree
	input    *protocol.BlocksInTree // of the encoder's input
	pools    []importPool
}

// importPool is what an import does in one pool.
//
// table becomes the table of the sequence. It is also the list of a Claim, and of the
// Unclaim that takes it back: pools pass over NoPage, so both name the same pages.
type importPool struct {
	table   []messages.PageID // NoPage: to be taken, or passed by the window
	claimed int               // pages of table
	fresh   []int             // blocks whose pages are taken
	take    int               // the operation that takes them
}

// start makes the sequence and asks the tree for its blocks.
//
// The values are checked once more although the shell has checked them on its caller's
// goroutine: from here on only a lack of pages can refuse the import, and what follows
// relies on the lengths.
func (m *importing) start(request any) {
	m.request = request.(*protocol.BeginImport)
	r := m.request
	r.Sequence, r.Missing, r.Err = 0, nil, nil
	p := &r.Prompt
	if r.OwnWeights {
		p.Namespace.Weights = m.config.identity
	}
	err := m.config.ValidateImport(r)
	if err == nil && p.Namespace.Weights != m.config.identity {
		err = refusals.New(messages.ErrNotSupported, "the sequence was computed by weights %q, the engine has %q", p.Namespace.Weights, m.config.identity)
	}
	if err != nil {
		r.Err = err
		m.kernel.reply()
		return
	}
	s := m.sequences.Open(m.kernel.stamp)
	s.Begin(sequence.Origin{
		Namespace: m.config.keyed(p.Namespace, p.Encoder, p.EncoderItems), Tenant: m.config.Tenants[p.Namespace.Salt],
		Session: p.Session, Retention: cloneRetention(p.Retention), InputRetention: cloneRetention(p.EncoderRetention),
		Prompt: sequence.TokenCount(r.Length), Arrived: m.kernel.now,
	}, p.Tokens, 0)
	s.Input.Begin(m.config.padded(p.Encoder), sequence.TokenCount(len(p.Encoder)))
	// The pages are as recent as this request, wherever they come from: an import does not
	// take over the age that the contents had at the source.
	s.Usage.SetUse(m.uses.next())
	if len(p.Multimodal) > 0 {
		s.HoldSymbols()
	}
	m.sequence, m.carried, m.inTree, m.input = s, m.config.CarriedPages(r.Computed, len(p.Encoder)), nil, nil
	// The tree writes symbols into the tokens of a prompt with items also when nothing is
	// matched: the sequence keeps its tokens in this form.
	if !m.config.Reuse && !sequence.HoldsSymbols(s) {
		m.claim()
		return
	}
	m.inTree = &protocol.BlocksInTree{}
	m.match = &protocol.Match{Header: protocol.Header{Epoch: m.kernel.epoch}, Items: []protocol.MatchItem{{
		Namespace: s.Namespace, Tokens: s.Tokens(0), Multimodal: p.Multimodal, KeepSymbols: sequence.HoldsSymbols(s), Limit: r.Computed, InTree: m.inTree,
		Checkpoint: protocol.NoBlock, // the states come with the stream
	}}}
	if s.Input.Given() {
		m.input = &protocol.BlocksInTree{}
		m.match.Items = append(m.match.Items, protocol.MatchItem{
			Cross: true, Namespace: s.Namespace, Tokens: s.Input.Tokens(), Limit: len(s.Input.Tokens()), InTree: m.input, Checkpoint: protocol.NoBlock,
		})
	}
	m.wait(m, "import: locating", (*importing).claim)
	m.kernel.toTree(m.match)
}

// claim shares the pages that are on the device.
//
// Claims come before the check of capacity: they tell how many pages really are to be
// taken, and a page that is claimed can no longer be evicted for the pages that the import
// takes.
func (m *importing) claim() {
	m.pools = make([]importPool, len(m.config.Pools))
	m.out.pools.reset()
	for p := range m.all.end {
		m.plan(p)
		if t := &m.pools[p]; t.claimed > 0 {
			m.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: t.table})
		}
	}
	m.wait(m, "import: claiming", (*importing).take)
	m.out.pools.send()
}

// plan lays out the table of one pool: what is claimed, what is taken, and what the window
// has passed.
//
// A pool of states has one page, the working page: the state that the stream carries is
// written there, and a stored checkpoint of another length could not replace it.
func (m *importing) plan(p int) {
	t := &m.pools[p]
	if m.states.has(p) {
		t.table, t.fresh = []messages.PageID{messages.NoPage}, []int{0}
		return
	}
	tokens, whole := len(m.request.Prompt.Tokens), m.request.Computed/m.config.TokensPerBlock
	// The encoder's input is computed, and its last block is padded: all of it is whole.
	input := m.cross.has(p)
	if input {
		tokens = len(m.sequence.Input.Tokens())
		whole = tokens / m.config.TokensPerBlock
	}
	for b := range m.config.blocks(tokens) {
		page := messages.NoPage
		switch {
		case !input && !carries(&m.config.Pools[p], b, m.request.Computed):
		// Only whole computed blocks are shared. The partial block at the end is written to
		// by the next step, so it gets a page of its own.
		case b < whole && m.onDevice(p, b) != messages.NoPage:
			page = m.onDevice(p, b)
			t.claimed++
		default:
			t.fresh = append(t.fresh, b)
		}
		t.table = append(t.table, page)
	}
}

// onDevice is the device page of a block, NoPage if there is none. The answer ends before
// the first block that the tree does not know.
func (m *importing) onDevice(p, b int) messages.PageID {
	inTree := m.inTree
	if m.cross.has(p) {
		inTree = m.input
	}
	if inTree == nil || b >= len(inTree.Blocks) {
		return messages.NoPage
	}
	if page, tier, ok := inTree.Pages[p][b].Page(); ok && tier == messages.Primary {
		return page
	}
	return messages.NoPage
}

// take takes the other pages, all or none.
func (m *importing) take() {
	m.out.pools.received()
	if refusal := m.checkCapacity(); refusal != nil {
		m.refuse(refusal)
		return
	}
	m.out.pools.reset()
	for p := range m.all.end {
		if t := &m.pools[p]; len(t.fresh) > 0 {
			t.take = m.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: len(t.fresh), Tenant: m.sequence.Tenant})
		}
	}
	m.wait(m, "import: taking", (*importing).taken)
	m.out.pools.send()
}

// checkCapacity is the refusal of an import that lacks pages. While admissions wait for
// pages, it lacks them whatever is there, as later admissions do.
func (m *importing) checkCapacity() *messages.Refusal {
	for p := range m.all.end {
		t := &m.pools[p]
		available := m.counts.available(p)
		if m.waiting.len() > 0 {
			available = 0
		}
		if refusal := m.counts.lack(p, len(t.fresh), available, len(t.fresh)+t.claimed); refusal != nil {
			return refusal
		}
	}
	return nil
}

// refuse takes the claims back.
func (m *importing) refuse(refusal *messages.Refusal) {
	m.request.Err = refusal
	m.pressure.noteRefusal(refusal)
	m.out.pools.reset()
	for p := range m.all.end {
		if t := &m.pools[p]; t.claimed > 0 {
			m.out.pools.add(p, protocol.PoolOp{Kind: protocol.Unclaim, Pages: t.table})
		}
	}
	m.wait(m, "import: refusing", (*importing).endRefused)
	m.out.pools.send()
}

// taken fills the tables, and offers the victims to host memory.
func (m *importing) taken() {
	m.out.pools.received()
	m.out.move.victims(&m.out.pools)
	for p := range m.all.end {
		t := &m.pools[p]
		if len(t.fresh) > 0 {
			pages := m.out.pools.op(p, t.take).Pages
			m.stats.allocated(p, len(pages))
			for i, b := range t.fresh {
				t.table[b] = pages[i]
			}
		}
		m.sequence.SetTable(p, append(m.sequence.Table(p)[:0], t.table...))
	}
	m.wait(m, "import: moving", (*importing).moved)
	m.out.move.send()
}

// moved tells the tree of the victims.
func (m *importing) moved() {
	m.out.moved()
	if m.wait(m, "import: applying", (*importing).applied); !m.out.applyIfNeeded() {
		m.finish()
	}
}

// applied makes pools and host memory follow the tree.
func (m *importing) applied() {
	m.wait(m, "import: following", (*importing).finish)
	m.out.applied()
	m.out.followUp()
}

// endRefused ends the sequence of an import that is refused.
func (m *importing) endRefused() {
	m.out.pools.received()
	m.out.end(m.sequence)
	m.kernel.reply()
}

// finish completes the sequence.
//
// Missing answers, for each carried page, whether its contents have to be written: it is
// in the order of CarriedPages, which both ends of the stream compute from the geometry
// alone, so the stream needs no list of pages.
func (m *importing) finish() {
	m.out.followed()
	r, s := m.request, m.sequence
	if r.NoStore {
		s.StopStoring()
	}
	if r.InputNoStore {
		s.Input.StopStoring()
	}
	shared := 0
	fresh := make([]map[int]bool, len(m.config.Pools))
	for p := range m.all.end {
		fresh[p] = make(map[int]bool, len(m.pools[p].fresh))
		for _, b := range m.pools[p].fresh {
			fresh[p][b] = true
		}
	}
	for _, at := range m.carried {
		missing := fresh[at.Pool][at.Block]
		// Blocks before shared may be held by others; a step that writes there asks the
		// pools first. One shared pool suffices to make a block shared. No step writes to the
		// encoder's input.
		if !missing && !m.cross.has(int(at.Pool)) {
			shared = max(shared, at.Block+1)
		}
		r.Missing = append(r.Missing, missing)
	}
	sequence.CompleteImport(s, sequence.TokenCount(r.Computed), sequence.BlockIndex(shared))
	r.Sequence = s.ID()
	m.kernel.reply()
}

// ValidateImport checks the values of an import alone. It reads nothing of the
// configuration that changes, so callers may use it outside of the coordinator's goroutine.
func (c *Config) ValidateImport(r *protocol.BeginImport) error {
	tokens, p := r.Prompt.Tokens, r.Prompt
	switch {
	case len(tokens) > c.MaxSeqLen:
		return refusals.New(messages.ErrTooLong, "a sequence of %d tokens is over max_seq_len %d", len(tokens), c.MaxSeqLen)
	case r.Length < 1 || r.Length > len(tokens):
		return refusals.New(messages.ErrBadRequest, "a prompt of %d of %d tokens", r.Length, len(tokens))
	// Pages of a prompt that is computed in part would need the reserve of its chunks.
	case r.Computed < r.Length || r.Computed > len(tokens):
		return refusals.New(messages.ErrBadRequest, "%d tokens are computed, the prompt has %d and the sequence %d", r.Computed, r.Length, len(tokens))
	}
	p.Tokens = tokens[:r.Length]
	if err := c.Validate(&p); err != nil {
		return err
	}
	if err := c.validateEncoderLength(len(p.Encoder)); err != nil {
		return err
	}
	if i := slices.IndexFunc(tokens[r.Length:], func(t messages.Token) bool { return t < 0 }); i >= 0 {
		return refusals.New(messages.ErrBadRequest, "token %d at position %d is not in 0 … 2³¹−1", tokens[r.Length+i], r.Length+i)
	}
	return nil
}
