package oracle

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// eviction is the order in which cached pages go: the eviction rule, for the pages of one
// tier, and with quotas whose pages go first.
type eviction struct {
	*layout
	references *references
}

// victim names the cached page of some that goes first: lowest priority, then useless, then least
// recently used, then deepest in its prefix, then released first. Clean copies are
// not asked.
func (e *eviction) victim(p *pool, pages []*page, of func(*page) bool) *page {
	var first *page
	for _, pg := range pages {
		if pg.block == nil || !of(pg) || e.references.used(p, pg) || e.references.guarded[pg] {
			continue
		}
		if pg.tier == messages.Secondary && pg.block.at[p.id].device != nil {
			continue
		}
		if first == nil || goesBefore(p, pg.block, first.block) {
			first = pg
		}
	}
	return first
}

// oldestCopy is the clean copy of some that is reclaimed first: the oldest, of those
// that one request made the deepest.
func (e *eviction) oldestCopy(p *pool, of func(*page) bool) *page {
	copies := slices.DeleteFunc(slices.Clone(p.host), func(pg *page) bool {
		return pg.block == nil || !of(pg) || pg.block.at[p.id].device == nil || e.references.guarded[pg]
	})
	if len(copies) == 0 {
		return nil
	}
	return slices.MinFunc(copies, func(x, y *page) int {
		a, b := x.block, y.block
		return cmp.Or(
			cmp.Compare(a.at[p.id].age, b.at[p.id].age), b.index-a.index,
			cmp.Compare(a.at[p.id].born, b.at[p.id].born),
		)
	})
}

// divided reports whether there are quotas.
func (e *eviction) divided() bool { return len(e.cfg.SaltQuotas) > 0 || e.cfg.OtherSaltsQuota > 0 }

// account is the salt whose quota stands for a salt; all that have none of
// their own share that of the empty one.
func (e *eviction) account(salt string) string {
	if _, own := e.cfg.SaltQuotas[salt]; own {
		return salt
	}
	return ""
}

// quota is how many of some pages an account may have.
func (e *eviction) quota(account string, pages []*page) int {
	share, own := e.cfg.SaltQuotas[account]
	if !own {
		share = e.cfg.OtherSaltsQuota
	}
	if share == 0 {
		share = 1
	}
	return int(math.Floor(share*float64(len(pages)) + 1e-9))
}

// owner is the account that a page is on.
func (e *eviction) owner(pg *page) string {
	if pg.block != nil {
		return e.account(pg.block.namespace.Salt)
	}
	return e.account(pg.salt)
}

// has counts the pages of an account, used and cached.
func (e *eviction) has(p *pool, account string, pages []*page) int {
	n := 0
	for _, pg := range pages {
		if e.owner(pg) == account && (pg.block != nil || e.references.used(p, pg) ||
			e.references.guarded[pg]) {
			n++
		}
	}
	return n
}

// deviceVictim is the page, of those that may be, that is evicted when a request
// of a salt takes one: from its own contents if it has its quota, else from those of
// accounts over theirs, else from all.
func (e *eviction) deviceVictim(p *pool, salt string, may func(*page) bool) *page {
	if !e.divided() {
		return e.victim(p, p.device, may)
	}
	account := e.account(salt)
	if e.has(p, account, p.device) >= e.quota(account, p.device) {
		if pg := e.victim(p, p.device, func(pg *page) bool {
			return may(pg) && e.owner(pg) == account
		}); pg != nil {
			return pg
		}
	}
	beyond := e.beyond(p, p.device)
	if pg := e.victim(p, p.device, func(pg *page) bool { return may(pg) && beyond(pg) }); pg != nil {
		return pg
	}
	return e.victim(p, p.device, may)
}

// hostVictim is the host page that goes for contents of a block. An account that
// has its quota makes room among its own. For others copies go before contents,
// and of each first those of accounts over theirs.
func (e *eviction) hostVictim(p *pool, b *block) *page {
	if !e.divided() {
		return e.roomAmong(p, b, anyone)
	}
	account := e.account(b.namespace.Salt)
	if e.has(p, account, p.host) >= e.quota(account, p.host) {
		return e.roomAmong(p, b, func(pg *page) bool { return e.owner(pg) == account })
	}
	beyond := e.beyond(p, p.host)
	if pg := e.oldestCopy(p, beyond); pg != nil {
		return pg
	}
	if pg := e.oldestCopy(p, anyone); pg != nil {
		return pg
	}
	if pg := e.victim(p, p.host, beyond); pg != nil {
		return pg // whatever it is worth
	}
	return e.roomAmong(p, b, anyone)
}

// roomAmong is the oldest clean copy of some pages, else the contents that go
// first unless they are worth more than those of b.
func (e *eviction) roomAmong(p *pool, b *block, of func(*page) bool) *page {
	if pg := e.oldestCopy(p, of); pg != nil {
		return pg
	}
	if pg := e.victim(p, p.host, of); pg != nil && !worthMore(p, pg.block, b) {
		return pg
	}
	return nil
}

// beyond tells of a page whether its account has more than its quota.
func (e *eviction) beyond(p *pool, pages []*page) func(*page) bool {
	over := map[string]bool{}
	for _, pg := range pages {
		account := e.owner(pg)
		over[account] = e.has(p, account, pages) > e.quota(account, pages)
	}
	return func(pg *page) bool { return over[e.owner(pg)] }
}

// goesBefore is the eviction rule, for two blocks cached in one tier of a pool.
func goesBefore(p *pool, a, b *block) bool {
	if a.priority != b.priority {
		return a.priority < b.priority
	}
	if a.at[p.id].useless != b.at[p.id].useless {
		return a.at[p.id].useless
	}
	if u, v := a.at[p.id].use, b.at[p.id].use; u != v {
		return u.before(v)
	}
	if a.index != b.index {
		return a.index > b.index
	}
	return a.at[p.id].ended < b.at[p.id].ended
}

// worthMore reports whether contents are worth more than those of b: by priority, and at the same
// priority if only those of b are useless.
func worthMore(p *pool, a, b *block) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return b.at[p.id].useless && !a.at[p.id].useless
}

// anyone allows every page.
func anyone(*page) bool { return true }
