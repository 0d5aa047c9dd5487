package oracle

import (
	"context"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Fetch brings what the store has of a prefix to host memory. It answers of how many
// blocks a page came, and how many of the tokens a lookup matches then.
func (t *StoreTier) Fetch(ctx context.Context, q messages.Prefix) (blocks, localTokens int, err error) {
	if err := t.o.begin(); err != nil {
		return 0, 0, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return 0, 0, err
	}
	if t.o.cfg.Store == nil {
		return 0, 0, refusals.New(messages.ErrNotSupported, "there is no store")
	}
	blocks = t.fetch(q)
	found, err := t.o.Lookup(ctx, q)
	return blocks, found.MatchedTokens, err
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
func (t *StoreTier) fetch(q messages.Prefix) (blocks int) {
	if !t.o.cfg.BlockReuse {
		return 0
	}
	key := symbols(q.Tokens, q.Multimodal)
	store := t.o.cfg.Store.Store
	inStore := t.asked(q, key)
	length, plan := t.longestFetch(q, key, inStore)
	for _, a := range plan {
		if len(a.missing) > 0 && !store.call() {
			length, plan = t.longestFetch(q, key, nowhere)
			break
		} else if len(a.missing) > 0 {
			break
		}
	}
	if length == 0 {
		return 0
	}
	return t.bringIn(q, key, plan)
}

// nowhere is what a store has that does not answer.
func nowhere(*pool, int) bool { return false }

// asked is what the store says that it has of a prefix.
func (t *StoreTier) asked(q messages.Prefix, key []symbol) func(*pool, int) bool {
	store := t.o.cfg.Store.Store
	if !t.o.cfg.OnboardBlocks || !t.anyMissing(q, key) || !store.call() {
		return nowhere
	}
	return func(p *pool, index int) bool {
		return store.objects[objectName(p, q.Namespace, key[:(index+1)*t.o.tpb])]
	}
}

// Lookup is that of the oracle, with the tokens that a fetch would make match besides.
func (t *StoreTier) Lookup(ctx context.Context, q messages.Prefix) (messages.Found, error) {
	found, err := t.o.Lookup(ctx, q)
	if err != nil || !t.o.cfg.BlockReuse {
		return found, err
	}
	key := symbols(q.Tokens, q.Multimodal)
	length, _ := t.longestFetch(q, key, t.asked(q, key))
	found.StoredTokens = max(0, min(length, len(key)-1)-found.MatchedTokens)
	return found, nil
}

// anyMissing reports whether any page of the prefix's whole blocks is in no tier: the store
// is asked then.
func (t *StoreTier) anyMissing(q messages.Prefix, key []symbol) bool {
	for index := range len(key) / t.o.tpb {
		b := t.o.find(q.Namespace, key[:(index+1)*t.o.tpb])
		for _, p := range t.o.pool {
			if b == nil || b.at[p.id] == nil {
				return true
			}
		}
	}
	return false
}

// longestFetch is the longest whole-block length of which every page that a match claims is
// in a tier or in the store, and for whose missing pages there is room; and what it needs.
func (t *StoreTier) longestFetch(q messages.Prefix, key []symbol, inStore func(*pool, int) bool) (int, []arrival) {
	for tokens := len(key) / t.o.tpb * t.o.tpb; tokens > 0; tokens -= t.o.tpb {
		if plan, ok := t.fetchOf(q, key[:tokens], inStore); ok {
			return tokens, plan
		}
	}
	return 0, nil
}

// fetchOf is what a fetch of exactly these tokens needs, by pool, and whether it can be had.
func (t *StoreTier) fetchOf(q messages.Prefix, key []symbol, inStore func(*pool, int) bool) ([]arrival, bool) {
	var plan []arrival
	for _, p := range t.o.pool {
		var a arrival
		for index := range len(key) / t.o.tpb {
			claimed := t.o.needs(p, index, len(key)) || p.State && (index+1)*t.o.tpb == len(key)
			b := t.o.find(q.Namespace, key[:(index+1)*t.o.tpb])
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
		if n := len(a.missing); n > 0 && n > t.fetchRoom(p, q.Namespace.Salt, a.there) {
			return nil, false
		}
		plan = append(plan, a)
	}
	return plan, true
}

// fetchRoom is how many host pages can be had for contents that are fetched: free ones,
// clean copies, and those of contents of at most the default priority that are not of the
// match. With quotas only free ones, within that of the salt.
func (t *StoreTier) fetchRoom(p *pool, salt string, match []*block) int {
	free, others := 0, 0
	for _, pg := range p.host {
		switch {
		case pg.block == nil:
			free++
		case pg.block.at[p.id].device != nil:
			others++ // a clean copy
		case t.yields(p, pg, match):
			others++
		}
	}
	if t.o.divided() {
		account := t.o.account(salt)
		return min(free, t.o.quota(account, p.host)-t.o.has(p, account, p.host))
	}
	return free + others
}

// yields reports whether the contents of a host page may be displaced by a fetch.
func (t *StoreTier) yields(p *pool, pg *page, match []*block) bool {
	if pg.block.priority > messages.DefaultPriority || t.o.used(p, pg) {
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
func (t *StoreTier) bringIn(q messages.Prefix, key []symbol, plan []arrival) int {
	pages := map[pageName]*page{}
	for _, p := range t.o.pool {
		for _, index := range plan[p.id].missing {
			pages[pageName{p, index}] = t.takeForFetch(p, plan[p.id].there)
		}
	}
	came := map[int]bool{}
	runs := make([][]*block, len(t.o.pool))
	flush := func(p *pool) {
		t.o.emitStored(p, runs[p.id])
		runs[p.id] = nil
	}
	for index := range len(key) / t.o.tpb {
		for _, p := range t.o.pool {
			pg := pages[pageName{p, index}]
			if pg == nil {
				flush(p)
				continue
			}
			came[index] = true
			b := t.fetched(q.Namespace, key[:(index+1)*t.o.tpb])
			b.at[p.id] = &spot{host: pg}
			pg.block = b
			t.o.touch(b)
			runs[p.id] = append(runs[p.id], b)
			t.o.spend(b.at[p.id], use{request: t.o.request})
		}
	}
	for _, p := range t.o.pool {
		flush(p)
		for _, b := range plan[p.id].there {
			t.o.spend(b.at[p.id], use{request: t.o.request})
		}
	}
	return len(came)
}

// takeForFetch takes a host page for contents that are fetched.
func (t *StoreTier) takeForFetch(p *pool, match []*block) *page {
	for _, pg := range p.host {
		if pg.block == nil && !t.o.guarded[pg] {
			t.o.guarded[pg] = true
			return pg
		}
	}
	pg := t.o.oldestCopy(p, anyone)
	if pg == nil {
		pg = t.o.victim(p, p.host, func(pg *page) bool { return t.yields(p, pg, match) })
	}
	if pg == nil {
		panic("pool " + p.Name + ": no host page is left of those that were counted")
	}
	if s := pg.block.at[p.id]; s.device != nil {
		s.host, pg.block = nil, nil
	} else {
		p.counters.Dropped++
		t.saveDropped(p, pg.block)
		t.o.forget(pg.block, p)
	}
	t.o.guarded[pg] = true
	return pg
}

// fetched is the block with this key. One that is in no pool yet has the default priority,
// no timer and no session.
func (t *StoreTier) fetched(ns messages.Namespace, key []symbol) *block {
	if b := t.o.find(ns, key); b != nil {
		return b
	}
	b := &block{
		namespace: ns, key: append([]symbol(nil), key...), index: len(key)/t.o.tpb - 1,
		at: make([]*spot, len(t.o.pool)), priority: messages.DefaultPriority,
	}
	t.o.blocks = append(t.o.blocks, b)
	return b
}

// fetchBefore fetches for the admissions of a batch that ask for it and are valid. The
// model's store never keeps them waiting.
func (t *StoreTier) fetchBefore(requests []messages.AdmitRequest) {
	for _, r := range requests {
		if r.Fetch > 0 && t.o.cfg.Store != nil && t.o.Validate(r) == nil {
			t.fetch(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens, Multimodal: r.Multimodal})
			t.writeCandidates()
			t.o.request++
			clear(t.o.guarded)
		}
	}
}
