package oracle

import "github.com/kvactor/kvactor/messages"

// fetcher brings what the store has of a prefix to host memory.
type fetcher struct {
	*layout
	clock      *clock
	log        *eventLog
	tree       *tree
	references *references
	eviction   *eviction
	memory     *memory
	saver      *saver
}

// pageName names the page of a block of a prefix in a pool.
type pageName struct {
	pool  *pool
	index int
}

// arrival is what a fetch of some length does in one pool.
type arrival struct {
	missing []int    // blocks whose page no tier has
	there   []*block // blocks of the match whose page is in a tier
}

// fetch is Fetch for a prefix that is valid.
func (f *fetcher) fetch(q messages.Prefix) (blocks int) {
	if !f.cfg.BlockReuse {
		return 0
	}
	key := symbols(q.Tokens, q.Multimodal)
	store := f.cfg.Store.Store
	inStore := f.asked(q, key)
	length, plan := f.longestFetch(q, key, inStore)
	for _, a := range plan {
		if len(a.missing) > 0 && !store.call() {
			length, plan = f.longestFetch(q, key, nowhere)
			break
		} else if len(a.missing) > 0 {
			break
		}
	}
	if length == 0 {
		return 0
	}
	return f.bringIn(q, key, plan)
}

// asked is what the store says that it has of a prefix.
func (f *fetcher) asked(q messages.Prefix, key []symbol) func(*pool, int) bool {
	store := f.cfg.Store.Store
	if !f.cfg.OnboardBlocks || !f.anyMissing(q, key) || !store.call() {
		return nowhere
	}
	return func(p *pool, index int) bool {
		return store.objects[objectName(p, q.Namespace, key[:(index+1)*f.tpb])]
	}
}

// anyMissing reports whether any page of the prefix's whole blocks is in no tier: the store
// is asked then.
func (f *fetcher) anyMissing(q messages.Prefix, key []symbol) bool {
	for index := range len(key) / f.tpb {
		b := f.tree.find(q.Namespace, key[:(index+1)*f.tpb])
		for _, p := range f.pools {
			if b == nil || b.at[p.id] == nil {
				return true
			}
		}
	}
	return false
}

// longestFetch is the longest whole-block length of which every page that a match claims is
// in a tier or in the store, and for whose missing pages there is room; and what it needs.
func (f *fetcher) longestFetch(
	q messages.Prefix, key []symbol, inStore func(*pool, int) bool,
) (int, []arrival) {
	for tokens := len(key) / f.tpb * f.tpb; tokens > 0; tokens -= f.tpb {
		if plan, ok := f.fetchOf(q, key[:tokens], inStore); ok {
			return tokens, plan
		}
	}
	return 0, nil
}

// fetchOf is what a fetch of exactly these tokens needs, by pool, and whether it can be had.
func (f *fetcher) fetchOf(
	q messages.Prefix, key []symbol, inStore func(*pool, int) bool,
) ([]arrival, bool) {
	var plan []arrival
	for _, p := range f.pools {
		var a arrival
		for index := range len(key) / f.tpb {
			claimed := f.needs(p, index, len(key)) || p.State && (index+1)*f.tpb == len(key)
			b := f.tree.find(q.Namespace, key[:(index+1)*f.tpb])
			switch {
			case !claimed:
			case b != nil && b.at[p.id] != nil:
				a.there = append(a.there, b)
			case inStore(p, index):
				a.missing = append(a.missing, index)
			default:
				return nil, false
			}
		}
		if n := len(a.missing); n > 0 && n > f.fetchRoom(p, q.Namespace.Salt, a.there) {
			return nil, false
		}
		plan = append(plan, a)
	}
	return plan, true
}

// fetchRoom is how many host pages can be had for contents that are fetched: free ones,
// clean copies, and those of contents of at most the default priority that are not of the
// match. With quotas only free ones, within that of the salt.
func (f *fetcher) fetchRoom(p *pool, salt string, match []*block) int {
	free, others := 0, 0
	for _, pg := range p.host {
		switch {
		case pg.block == nil:
			free++
		case pg.block.at[p.id].device != nil:
			others++ // a clean copy
		case f.yields(p, pg, match):
			others++
		}
	}
	if f.eviction.divided() {
		account := f.eviction.account(salt)
		return min(free, f.eviction.quota(account, p.host)-f.eviction.has(p, account, p.host))
	}
	return free + others
}

// yields reports whether the contents of a host page may be displaced by a fetch.
func (f *fetcher) yields(p *pool, pg *page, match []*block) bool {
	if pg.block.priority > messages.DefaultPriority || f.references.used(p, pg) {
		return false
	}
	for _, b := range match {
		if b == pg.block {
			return false
		}
	}
	return true
}

// bringIn takes the host pages, makes them those of the blocks, and leaves a use on all
// pages of the match. It answers of how many blocks a page came.
func (f *fetcher) bringIn(q messages.Prefix, key []symbol, plan []arrival) int {
	pages := map[pageName]*page{}
	for _, p := range f.pools {
		for _, index := range plan[p.id].missing {
			pages[pageName{p, index}] = f.takeForFetch(p, plan[p.id].there)
		}
	}
	came := map[int]bool{}
	runs := make([][]*block, len(f.pools))
	flush := func(p *pool) {
		f.log.stored(p, runs[p.id])
		runs[p.id] = nil
	}
	for index := range len(key) / f.tpb {
		for _, p := range f.pools {
			pg := pages[pageName{p, index}]
			if pg == nil {
				flush(p)
				continue
			}
			came[index] = true
			b := f.tree.fetched(q.Namespace, key[:(index+1)*f.tpb])
			b.at[p.id] = &spot{host: pg}
			pg.block = b
			f.tree.touch(b)
			runs[p.id] = append(runs[p.id], b)
			f.memory.spend(b.at[p.id], use{request: f.clock.request})
		}
	}
	for _, p := range f.pools {
		flush(p)
		for _, b := range plan[p.id].there {
			f.memory.spend(b.at[p.id], use{request: f.clock.request})
		}
	}
	return len(came)
}

// takeForFetch takes a host page for contents that are fetched.
func (f *fetcher) takeForFetch(p *pool, match []*block) *page {
	for _, pg := range p.host {
		if pg.block == nil && !f.references.guarded[pg] {
			f.references.guarded[pg] = true
			return pg
		}
	}
	pg := f.eviction.oldestCopy(p, anyone)
	if pg == nil {
		pg = f.eviction.victim(p, p.host, func(pg *page) bool { return f.yields(p, pg, match) })
	}
	if pg == nil {
		panic("pool " + p.Name + ": no host page is left of those that were counted")
	}
	if s := pg.block.at[p.id]; s.device != nil {
		s.host, pg.block = nil, nil
	} else {
		p.counters.Dropped++
		f.saver.saveDropped(p, pg.block)
		f.tree.forget(pg.block, p)
	}
	f.references.guarded[pg] = true
	return pg
}

// fetchBefore fetches for the admissions of a batch that ask for it and are valid. The
// model's store never keeps them waiting.
func (f *fetcher) fetchBefore(requests []messages.AdmitRequest) {
	for _, r := range requests {
		if r.Fetch > 0 && f.cfg.Store != nil && f.validate(r) == nil {
			f.fetch(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens, Multimodal: r.Multimodal})
			f.saver.writeCandidates()
			f.clock.request++
			clear(f.references.guarded)
		}
	}
}

// nowhere is what a store has that does not answer.
func nowhere(*pool, int) bool { return false }
