package evict

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// tenant is what one tenant has. Its pages that may be evicted are in queues, one for each
// priority that has had some.
type tenant struct {
	share   windows.Quota
	quota   int // pages: the share of all
	pages   int // that count for the tenant, whether they may be evicted or not
	waiting int // pages in queues
	levels  []level
}

// level is the queue of one level, see Page.level. Those of a tenant are in ascending order.
type level struct {
	number  int16
	waiting int // pages in the queue
	queue   Queue
}

// level is a level, which is made if there is none. Few levels are in use, so a search from the
// lowest is short. Copies go by LRU, whatever the policy.
func (t *tenant) level(number int16, c *Core) *level {
	i := 0
	for i < len(t.levels) && t.levels[i].number < number {
		i++
	}
	if i < len(t.levels) && t.levels[i].number == number {
		return &t.levels[i]
	}
	l := level{number: number}
	if number == copies {
		l.queue = newLRUQueue(c)
	} else {
		l.queue = c.policy.NewQueue()
	}
	t.levels = slices.Insert(t.levels, i, l)
	return &t.levels[i]
}

// lowest is the first level that has pages, nil if none has.
func (t *tenant) lowest() *level {
	if t.waiting == 0 {
		return nil
	}
	i := 0
	for t.levels[i].waiting == 0 {
		i++
	}
	return &t.levels[i]
}

// Divide makes the quotas shares of so many pages.
func (c *Core) Divide(total int) {
	for t := range c.tenants {
		c.tenants[t].quota = total
		if c.quotas {
			c.tenants[t].quota = c.tenants[t].share.Pages(total)
		}
	}
}

// Quotas are the shares that the Core was made with.
func (c *Core) Quotas() (shares []windows.Quota) {
	if c.quotas {
		for t := range c.tenants {
			shares = append(shares, c.tenants[t].share)
		}
	}
	return shares
}

// Divided tells whether there are quotas.
func (c *Core) Divided() bool { return c.quotas }

// Knows tells whether a tenant has a quota. Without quotas the tenant is not looked at.
func (c *Core) Knows(t protocol.Tenant) bool { return !c.quotas || int(t) < len(c.tenants) }

// Join makes a page count for a tenant, Leave for none. It does neither while it may be evicted.
func (c *Core) Join(p int32, t protocol.Tenant) {
	if !c.quotas {
		t = protocol.OtherTenants
	}
	c.pages[p].Tenant = t
	c.tenants[t].pages++
}

// Leave ends that a page counts for its tenant.
func (c *Core) Leave(p int32) {
	g := &c.pages[p]
	c.tenants[g.Tenant].pages--
	g.Tenant = protocol.OtherTenants
}

// Account counts the pages of a tenant that may be evicted, and as used the others.
func (c *Core) Account(t protocol.Tenant) protocol.Account {
	a := &c.tenants[t]
	return protocol.Account{Quota: a.quota, Used: a.pages - a.waiting, Cached: a.waiting}
}

// Room is how many pages a tenant may have beyond those that it has; less than 0: it has more.
func (c *Core) Room(t protocol.Tenant) int { return c.tenants[t].quota - c.tenants[t].pages }

// Full tells whether a tenant has reached its quota, so that it replaces its own contents.
// Without quotas no tenant has.
func (c *Core) Full(t protocol.Tenant) bool {
	return c.quotas && c.tenants[t].pages >= c.tenants[t].quota
}

// Victim is the page that is evicted when a tenant takes one, None if there is none. A tenant
// that has reached its quota replaces its own contents, if it has some that may be evicted.
func (c *Core) Victim(taker protocol.Tenant) int32 {
	return c.VictimUpTo(taker, messages.MaxPriority)
}

// VictimUpTo is Victim among pages of at most a priority: the next group of tenants is tried
// where the first page of one is worth too much.
func (c *Core) VictimUpTo(taker protocol.Tenant, most messages.Priority) int32 {
	if c.Full(taker) {
		if p := c.FirstOf(taker); p != None && c.pages[p].Priority <= most {
			return p
		}
	}
	if p := c.FirstOver(); p != None && c.pages[p].Priority <= most {
		return p
	}
	if p := c.First(); p != None && c.pages[p].Priority <= most {
		return p
	}
	return None
}

// FirstOf is the page of a tenant that is evicted first, or None.
func (c *Core) FirstOf(t protocol.Tenant) int32 {
	if l := c.tenants[t].lowest(); l != nil {
		return l.queue.First()
	}
	return None
}

// First is the page of all tenants that is evicted first, or None.
func (c *Core) First() int32 { return c.first(false) }

// FirstOver is the page that is evicted first of the tenants over their quotas, or None.
func (c *Core) FirstOver() int32 { return c.first(true) }

// first looks at each tenant: there are as few as there are quotas.
func (c *Core) first(over bool) int32 {
	best, lowest := None, int16(math.MaxInt16)
	for t := range c.tenants {
		a := &c.tenants[t]
		l := a.lowest()
		if l == nil || over && a.pages <= a.quota || l.number > lowest {
			continue
		}
		p := l.queue.First()
		if best == None || l.number < lowest || l.queue.Before(p, best) {
			best, lowest = p, l.number
		}
	}
	return best
}

// Peek appends at most n pages that will be evicted next, in their order, and evicts none.
//
// With quotas the victim depends on the tenant that takes the next page, which is not known.
// What tenants have beyond their quotas comes first, then an equal part of the pages that each
// other tenant would lose first. The parts do not go by quota, because a tenant that takes
// pages at a high rate may have a small one.
func (c *Core) Peek(n int, list []int32) []int32 {
	if !c.quotas {
		return c.tenants[0].peek(n, list)
	}
	end := len(list) + n
	for t := range c.tenants {
		if a := &c.tenants[t]; a.pages > a.quota {
			list = a.peek(min(end-len(list), a.pages-a.quota), list)
		}
	}
	part := (end-len(list))/len(c.tenants) + 1
	for t := range c.tenants {
		if a := &c.tenants[t]; a.pages <= a.quota {
			list = a.peek(min(end-len(list), part), list)
		}
	}
	return list
}

// peek appends at most n pages of one tenant.
func (t *tenant) peek(n int, list []int32) []int32 {
	end := len(list) + n
	for i := range t.levels {
		if len(list) < end {
			list = t.levels[i].queue.Peek(end-len(list), list)
		}
	}
	return list
}

// Surplus is the page that is evicted when no tenant takes it, as when a pool shrinks.
func (c *Core) Surplus() int32 {
	if p := c.FirstOver(); p != None {
		return p
	}
	return c.First()
}
