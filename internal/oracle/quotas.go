package oracle

import "math"

// divided reports whether there are quotas.
func (o *Oracle) divided() bool { return len(o.cfg.SaltQuotas) > 0 || o.cfg.OtherSaltsQuota > 0 }

// account is the salt whose quota stands for a salt; all that have none of
// their own share that of the empty one.
func (o *Oracle) account(salt string) string {
	if _, own := o.cfg.SaltQuotas[salt]; own {
		return salt
	}
	return ""
}

// quota is how many of some pages an account may have.
func (o *Oracle) quota(account string, pages []*page) int {
	share, own := o.cfg.SaltQuotas[account]
	if !own {
		share = o.cfg.OtherSaltsQuota
	}
	if share == 0 {
		share = 1
	}
	return int(math.Floor(share*float64(len(pages)) + 1e-9))
}

// owner is the account that a page is on.
func (o *Oracle) owner(pg *page) string {
	if pg.block != nil {
		return o.account(pg.block.namespace.Salt)
	}
	return o.account(pg.salt)
}

// has counts the pages of an account, used and cached.
func (o *Oracle) has(p *pool, account string, pages []*page) int {
	n := 0
	for _, pg := range pages {
		if o.owner(pg) == account && (pg.block != nil || o.used(p, pg) || o.guarded[pg]) {
			n++
		}
	}
	return n
}

// deviceVictim is the page, of those that may be, that is evicted when a request
// of a salt takes one: from its own contents if it has its quota, else from those of
// accounts over theirs, else from all.
func (o *Oracle) deviceVictim(p *pool, salt string, may func(*page) bool) *page {
	if !o.divided() {
		return o.victim(p, p.device, may)
	}
	account := o.account(salt)
	if o.has(p, account, p.device) >= o.quota(account, p.device) {
		if pg := o.victim(p, p.device, func(pg *page) bool { return may(pg) && o.owner(pg) == account }); pg != nil {
			return pg
		}
	}
	beyond := o.beyond(p, p.device)
	if pg := o.victim(p, p.device, func(pg *page) bool { return may(pg) && beyond(pg) }); pg != nil {
		return pg
	}
	return o.victim(p, p.device, may)
}

// hostVictim is the host page that goes for contents of a block. An account that
// has its quota makes room among its own. For others copies go before contents,
// and of each first those of accounts over theirs.
func (o *Oracle) hostVictim(p *pool, b *block) *page {
	if !o.divided() {
		return o.roomAmong(p, b, anyone)
	}
	account := o.account(b.namespace.Salt)
	if o.has(p, account, p.host) >= o.quota(account, p.host) {
		return o.roomAmong(p, b, func(pg *page) bool { return o.owner(pg) == account })
	}
	beyond := o.beyond(p, p.host)
	if pg := o.oldestCopy(p, beyond); pg != nil {
		return pg
	}
	if pg := o.oldestCopy(p, anyone); pg != nil {
		return pg
	}
	if pg := o.victim(p, p.host, beyond); pg != nil {
		return pg // whatever it is worth
	}
	return o.roomAmong(p, b, anyone)
}

// roomAmong is the oldest clean copy of some pages, else the contents that go
// first unless they are worth more than those of b.
func (o *Oracle) roomAmong(p *pool, b *block, of func(*page) bool) *page {
	if pg := o.oldestCopy(p, of); pg != nil {
		return pg
	}
	if pg := o.victim(p, p.host, of); pg != nil && pg.block.priority <= b.priority {
		return pg
	}
	return nil
}

// beyond tells of a page whether its account has more than its quota.
func (o *Oracle) beyond(p *pool, pages []*page) func(*page) bool {
	over := map[string]bool{}
	for _, pg := range pages {
		account := o.owner(pg)
		over[account] = o.has(p, account, pages) > o.quota(account, pages)
	}
	return func(pg *page) bool { return over[o.owner(pg)] }
}

func anyone(*page) bool { return true }
