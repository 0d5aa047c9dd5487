package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// admitting is the state of a batch of admissions on its way through
//
//	match → claim → judge → take → move → apply → answer
//
// A lookup and a prefetch go a part of the same way.
type admitting struct {
	purpose  purpose
	items    []admission
	judging  int                        // the item to be judged next
	resume   func(*Coordinator)         // the stage after an item was matched again
	promised []int                      // by pool: pages for admissions judged before
	granted  []int                      // by pool: of these, pages for partial copies
	seized   []int                      // by pool: source pages to be taken over, unreferenced so far
	sources  []sourcePages              // by pool: of items that reuse a part of them
	wishes   wishes                     // for the sources
	bringers []map[protocol.BlockID]int // by pool: which item brings a block from host memory
	again    bool                       // those whose transfers failed are admitted once more
	served   []*sequence                // of this request, while those are
}

// purpose is what a batch is for.
type purpose uint8

const (
	toAdmit    purpose = iota
	toLookup           // decide, then give the claims back
	toPrefetch         // bring to the device, then let go
	toRehearse         // judge, then give the claims back
)

// admission is one item of the batch. match is its entry in the Match record.
type admission struct {
	sequence *sequence
	result   *messages.Admitted // nil but for admissions
	beams    int
	refused  *messages.Refusal
	how      messages.PartialReuse
	ready    int    // index of its question in the Move, −1: none
	plans    []plan // by pool
}

// plan is what an admission needs in one pool.
type plan struct {
	inspect  int // operations of the pool, −1: none
	copyPage int
	onboard  int
	fresh    int
	source   [1]messages.PageID // the source of a partial reuse, if on the device
	copied   [1]messages.PageID // the page for its copy
	full     int                // pages claimed whole, onboarded ones too
	claimed  int                // of these, on the device
	hosted   int                // of these, in host memory, to be brought in
	shared   []messages.PageID  // of these, brought in by an earlier item
	blocks   int                // of the table after the admission
}

// noPlan is a plan without operations.
var noPlan = plan{inspect: -1, copyPage: -1, onboard: -1, fresh: -1}

func (a *admitting) init(pools int) {
	a.promised, a.granted, a.seized = make([]int, pools), make([]int, pools), make([]int, pools)
	a.sources, a.bringers = make([]sourcePages, pools), make([]map[protocol.BlockID]int, pools)
	for p := range a.bringers {
		a.bringers[p] = map[protocol.BlockID]int{}
	}
}

// admit starts a batch of admissions.
func (c *Coordinator) admit(r *messages.Admit) {
	c.startBatch(toAdmit)
	r.Results = c.enterAll(r.Requests, r.Results)
	c.matchBatch()
}

// enterAll enters the requests of a batch that are right in themselves; the
// others have their refusals in the results, which are reused.
func (c *Coordinator) enterAll(requests []messages.AdmitRequest, results []messages.Admitted) []messages.Admitted {
	for len(results) < len(requests) {
		results = append(results, messages.Admitted{})
	}
	results = results[:len(requests)]
	for i := range requests {
		result := &results[i]
		*result = messages.Admitted{Reuse: result.Reuse[:0], Tables: result.Tables, Ready: result.Ready[:0]}
		request := &requests[i]
		if err := c.Validate(request); err != nil {
			result.Err = err
			continue
		}
		if n := len(request.Tokens); n > c.MaxSeqLen {
			result.Err = messages.Refuse(messages.TooLong, "a prompt of %d tokens is over max_seq_len %d", n, c.MaxSeqLen)
			continue
		}
		c.enter(request, result)
	}
	return results
}

// startBatch empties the batch; sequences and match items keep their arrays.
func (c *Coordinator) startBatch(p purpose) {
	a := &c.admitting
	a.purpose, a.items, a.again, a.served = p, a.items[:0], false, a.served[:0]
	c.match.Items = c.match.Items[:0]
	c.clearPromises()
}

func (c *Coordinator) clearPromises() {
	a := &c.admitting
	a.judging = 0
	clear(a.promised)
	clear(a.granted)
	clear(a.seized)
	for p := range a.sources {
		a.sources[p].clear()
		if len(a.bringers[p]) > 0 {
			clear(a.bringers[p])
		}
	}
}

// enter makes the sequence of a request and its items in the batch.
func (c *Coordinator) enter(r *messages.AdmitRequest, result *messages.Admitted) {
	s := c.openSequence()
	s.namespace, s.session, s.prompt = r.Namespace, r.Session, len(r.Tokens)
	s.tenant = c.Tenants[s.namespace.Salt]
	if !r.Retention.IsZero() {
		s.retention = cloneRetention(r.Retention)
	}
	s.tokens[0] = append(s.tokens[0], r.Tokens...)
	s.chunk = r.ChunkTokens
	if len(r.Multimodal) > 0 {
		s.symbols = new(int)
		*s.symbols = 1
	}
	it := c.item(s, max(1, r.BeamWidth))
	it.result = result
	c.addMatch(s, r.Multimodal, c.reusable(len(r.Tokens)))
}

// reusable is how many tokens of a prompt may be reused: one must be computed
// to have logits.
func (c *Coordinator) reusable(prompt int) int {
	if c.ReuseAll {
		return prompt
	}
	return prompt - 1
}

func cloneRetention(r *messages.Retention) *messages.Retention {
	kept := &messages.Retention{Ranges: slices.Clone(r.Ranges)}
	if r.Decode != nil {
		decode := *r.Decode
		kept.Decode = &decode
	}
	return kept
}

// item adds an admission to the batch.
func (c *Coordinator) item(s *sequence, beams int) *admission {
	a := &c.admitting
	if n := len(a.items); n < cap(a.items) {
		a.items = a.items[:n+1]
	} else {
		a.items = append(a.items, admission{})
	}
	it := &a.items[len(a.items)-1]
	plans := it.plans[:0]
	for range c.Pools {
		plans = append(plans, noPlan)
	}
	*it = admission{sequence: s, beams: beams, how: messages.PartialNone, ready: -1, plans: plans}
	return it
}

// addMatch adds the item's prompt to the Match record.
func (c *Coordinator) addMatch(s *sequence, items []messages.MultimodalItem, limit int) {
	m := &c.match
	if n := len(m.Items); n < cap(m.Items) {
		m.Items = m.Items[:n+1]
	} else {
		m.Items = append(m.Items, protocol.MatchItem{})
	}
	it := &m.Items[len(m.Items)-1]
	it.Namespace, it.Tokens, it.Multimodal, it.Limit = s.namespace, s.tokens[0], items, limit
	it.KeepSymbols, it.Partial = s.symbols != nil, c.Partial && c.admitting.purpose != toPrefetch
	it.Matched, it.Blocks, it.Reach, it.Lacking = 0, 0, 0, false
	it.IDs = it.IDs[:0]
	it.Source = protocol.Source{Block: protocol.NoBlock, Pages: it.Source.Pages[:0]}
	for p := range it.Pages {
		it.Pages[p] = it.Pages[p][:0]
	}
}

// matchBatch asks the tree, if anything can be stored there.
func (c *Coordinator) matchBatch() {
	switch {
	case len(c.admitting.items) == 0:
		c.admitAnswer()
	case !c.Reuse:
		c.judge()
	default:
		c.match.Epoch = c.epoch
		c.pending++
		c.next = (*Coordinator).matched
		c.port.Tree(&c.match)
	}
}

// matched claims what was found, and asks who else holds the sources once all
// is claimed: one that another item claims whole is no page that could be had.
func (c *Coordinator) matched() {
	if c.admitting.purpose == toLookup && c.foundAtOnce() {
		return
	}
	c.resetWork()
	for i := range c.admitting.items {
		if c.admitting.items[i].refused == nil {
			c.claim(i)
		}
	}
	for i := range c.admitting.items {
		if c.admitting.items[i].refused == nil {
			c.inspect(i)
		}
	}
	c.sendPools((*Coordinator).claimed)
}

// claim writes the matched pages into the sequence's tables and claims those
// on the device. Blocks in host memory get their page when it is taken.
func (c *Coordinator) claim(i int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	for p := range c.Pools {
		pl := &it.plans[p]
		*pl = noPlan
		held := &it.sequence.pools[p]
		held.tables[0], pl.claimed, pl.hosted = tableOf(held.tables[0][:0], m.Pages[p][:m.Blocks])
		if pl.claimed > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: held.tables[0]})
		}
		pl.full = pl.claimed + pl.hosted
	}
}

// tableOf adds the device pages of blocks to a table, NoPage for what is not on
// the device, and counts the blocks on the device and those in host memory.
func tableOf(table []messages.PageID, locations []messages.Location) (_ []messages.PageID, device, host int) {
	table = slices.Grow(table, len(locations))[:len(locations)]
	for b, at := range locations {
		table[b] = messages.PageID(at)
		device += int(^uint32(at) >> 31) // mostly all are: no branch
	}
	if device == len(locations) {
		return table, device, 0
	}
	for b, at := range locations {
		if at < messages.Nowhere {
			table[b] = messages.NoPage
			host++
		}
	}
	return table, device, host
}

// inspect asks the pools who holds the source of a partial reuse.
func (c *Coordinator) inspect(i int) {
	it, source := &c.admitting.items[i], &c.match.Items[i].Source
	if source.Block == protocol.NoBlock {
		return
	}
	for p := range c.Pools {
		if page, tier, _ := source.Pages[p].Page(); tier == messages.Primary {
			pl := &it.plans[p]
			pl.source[0] = page
			pl.inspect = c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: pl.source[:]})
		}
	}
}

// claimed decides how each source is reused; all sources are looked at before
// any admission is judged.
func (c *Coordinator) claimed() {
	c.pooled()
	c.admitting.wishes.count(c.admitting.items, c.match.Items, !c.CopyOnPartial)
	for i := range c.admitting.items {
		c.decideHow(i)
	}
	c.settleSources()
}

// settleSources matches every item again whose source nobody may reuse, so
// that its claims, too, are made before any item is judged.
func (c *Coordinator) settleSources() {
	a := &c.admitting
	for ; a.judging < len(a.items); a.judging++ {
		i := a.judging
		if a.items[i].refused == nil && a.items[i].how == messages.PartialNone && c.match.Items[i].Source.Block != protocol.NoBlock {
			c.rematch((*Coordinator).settleSources)
			return
		}
	}
	a.judging = 0
	c.judge()
}
