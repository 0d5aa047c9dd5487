package evict

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// None stands for no page.
const None int32 = -1

// Page is what a Core knows of the contents of one page. Policies read all of it, and change
// only what is for queues.
type Page struct {
	Contents                   // zero but for the use if the page has none
	Tenant     protocol.Tenant // that the page counts for
	Stored     bool            // the page has contents
	waiting    bool            // the page is in the queue of its tenant and priority
	Prev, Next int32           // for the queue: neighbours in a list
	At         int32           // for the queue: index in a heap
}

// Contents are what a page holds.
type Contents struct {
	Use      protocol.Use      // the latest; 0: none yet
	Depth    int32             // of the block in its prefix
	Tie      int32             // decides between pages that are equal in use and depth
	Priority messages.Priority // that they are evicted by
	Copy     bool              // they are elsewhere too, so they go before all others
	Useless  bool              // no match can use them, so they go first of their priority
}

// Core orders the pages of one memory that may be evicted. See the package.
type Core struct {
	pages   []Page
	policy  Policy
	tiered  Tiered  // the policy, if it is one
	pieces  *pieces // the policy, if it is forecast
	now     time.Duration
	used    [1]messages.PageID // scratch space of UsedAlone
	tenants []tenant           // by protocol.Tenant; one without quotas
	quotas  bool
	waiting int // pages that may be evicted: the sum of tenant.waiting
	stored  int // pages with contents
}

// Config sizes a Core.
type Config struct {
	Pages int
	// Quotas are the tenants' shares of Total pages; nil: there is one tenant, OtherTenants.
	Quotas []windows.Quota
	Total  int
	Policy Options
}

// New makes a Core of pages without contents, which belong to no tenant.
func New(config Config) *Core {
	c := &Core{pages: make([]Page, config.Pages), quotas: len(config.Quotas) > 0,
		tenants: make([]tenant, max(1, len(config.Quotas)))}
	for t := range config.Quotas {
		c.tenants[t].share = config.Quotas[t]
	}
	c.Divide(config.Total)
	c.policy = newPolicy(c, config.Policy)
	c.tiered, _ = c.policy.(Tiered)
	c.pieces, _ = c.policy.(*pieces)
	c.policy.Resize(config.Pages)
	return c
}

// Page is what is known of a page. The caller changes nothing but what is for queues.
func (c *Core) Page(p int32) *Page { return &c.pages[p] }

// Waiting is the number of pages that may be evicted.
func (c *Core) Waiting() int { return c.waiting }

// Filling is how many pages count for a tenant and have no contents yet.
func (c *Core) Filling() int {
	n := -c.stored
	for t := range c.tenants {
		n += c.tenants[t].pages
	}
	return n
}

// Holds tells whether a page has contents.
func (c *Core) Holds(id messages.PageID) bool {
	return id != messages.NoPage && c.pages[id].Stored
}

// Waits tells whether a page may be evicted.
func (c *Core) Waits(p int32) bool { return c.pages[p].waiting }

// Advance moves the clock, which never goes back.
func (c *Core) Advance(now time.Duration) {
	c.now = max(c.now, now)
	if c.pieces != nil {
		c.pieces.advance(c.now)
	}
}

// Used tells the policy of pages that a request uses, see Policy.Used.
func (c *Core) Used(pages []messages.PageID, r *Request) { c.policy.Used(pages, r) }

// UsedAlone tells the policy that contents are used, in a memory that is not told of requests.
func (c *Core) UsedAlone(p int32) {
	c.used[0] = messages.PageID(p)
	c.policy.Used(c.used[:], nil)
}

// Noted is what a policy knows of contents that are evicted, if anything.
func (c *Core) Noted(p int32) (known Known, ok bool) {
	if c.tiered == nil {
		return known, false
	}
	return c.tiered.Noted(p)
}

// Note tells what the policy of another Core has noted of contents that have come here; nil:
// nothing.
func (c *Core) Note(p int32, known *Known) {
	if c.tiered == nil {
		c.UsedAlone(p)
	} else {
		c.tiered.Note(p, known)
	}
}

// Await tells forecast that a request which waits is going to use the contents of pages of the
// device. The pages of one work, between two calls of Advance, wait alike.
func (c *Core) Await(pages []messages.PageID) {
	if c.pieces != nil {
		c.pieces.await(pages)
	}
}

// RankBy lends forecast what ranks the contents that were noted; nil ends that.
func (c *Core) RankBy(r protocol.Ranking) {
	if c.pieces != nil {
		c.pieces.rankBy(r)
	}
}

// Ranking is what another Core may rank by what this one has evicted, nil if there is nothing.
func (c *Core) Ranking() protocol.Ranking {
	if c.pieces == nil || c.pieces.model == nil {
		return nil
	}
	return c.pieces.model
}

// Store gives a page contents, which may not be evicted yet. The page has none, or those that
// are the same in other words, as those of a copy that are the only ones now.
func (c *Core) Store(p int32, s Contents) {
	g := &c.pages[p]
	c.mustNotWait(p, "store")
	if !g.Stored {
		c.stored++
	}
	g.Stored, g.Contents = true, s
}

// Forget ends the contents of a page, which may not be evicted.
func (c *Core) Forget(p int32) {
	c.mustNotWait(p, "forget")
	c.policy.Forget(p)
	g := &c.pages[p]
	if g.Stored {
		c.stored--
	}
	g.Stored, g.Contents = false, Contents{}
}

// Touch notes a use, unless there was a later one.
func (c *Core) Touch(p int32, use protocol.Use) {
	if g := &c.pages[p]; use > g.Use {
		c.change(p, func() { g.Use = use })
	}
}

// SetUseless says whether no match can use contents, for want of what other memories hold.
func (c *Core) SetUseless(p int32, useless bool) {
	if g := &c.pages[p]; g.Useless != useless {
		c.change(p, func() { g.Useless = useless })
	}
}

// SetPriority gives contents a priority.
func (c *Core) SetPriority(p int32, priority messages.Priority) {
	if g := &c.pages[p]; g.Priority != priority {
		c.change(p, func() { g.Priority = priority })
	}
}

// change changes what the order of a page depends on, which leaves its queue meanwhile.
func (c *Core) change(p int32, set func()) {
	if !c.pages[p].waiting {
		set()
		return
	}
	c.Remove(p)
	set()
	c.Add(p)
}

// Add makes a page with contents one that may be evicted.
func (c *Core) Add(p int32) {
	g := &c.pages[p]
	if g.waiting || !g.Stored {
		panic(fmt.Sprintf("evict: page %d comes to the order: stored %v, there already %v",
			p, g.Stored, g.waiting))
	}
	t := &c.tenants[g.Tenant]
	l := t.level(g.level(), c)
	l.queue.Add(p)
	l.waiting++
	g.waiting = true
	t.waiting++
	c.waiting++
}

// Remove makes a page one that may not be evicted. It keeps its contents and their place in
// the order: Add brings it back.
func (c *Core) Remove(p int32) {
	g := &c.pages[p]
	if !g.waiting {
		panic(fmt.Sprintf("evict: page %d leaves the order, in which it is not", p))
	}
	t := &c.tenants[g.Tenant]
	l := t.level(g.level(), c)
	l.queue.Remove(p)
	l.waiting--
	g.waiting = false
	t.waiting--
	c.waiting--
}

// mustNotWait panics if a page may be evicted.
func (c *Core) mustNotWait(p int32, what string) {
	if c.pages[p].waiting {
		panic(fmt.Sprintf("evict: %s of page %d, which is in the order", what, p))
	}
}

// Move gives all that is known of one page to another, about which nothing is known.
func (c *Core) Move(from, to int32) {
	waited := c.pages[from].waiting
	if waited {
		c.Remove(from)
	}
	c.pages[to] = c.pages[from]
	c.pages[from] = Page{}
	c.policy.Move(from, to)
	if waited {
		c.Add(to)
	}
}

// Resize changes the number of pages. Those that go have no contents and no tenant.
func (c *Core) Resize(pages int) {
	old := c.pages
	c.pages = make([]Page, pages)
	copy(c.pages, old)
	c.policy.Resize(pages)
}

// level is the level of a page's contents: that of copies is below all others, and of each
// priority that of what no match can use is below that of the rest.
func (g *Page) level() int16 {
	switch {
	case g.Copy:
		return copies
	case g.Useless:
		return 2 * int16(g.Priority)
	default:
		return 2*int16(g.Priority) + 1
	}
}

// copies is the level of contents that are elsewhere too.
const copies int16 = -1

// NotAbove tells whether contents of a page go before others, or with them by their use: they
// have a lower priority, or the same and are as useless.
func (g *Page) NotAbove(priority messages.Priority, useless bool) bool {
	return g.Priority < priority || g.Priority == priority && (g.Useless || !useless)
}

// Before is the rule of LRU between two pages of one priority: the earlier use first, then the
// deeper block. The lowest bit of a use tells apart what one request has released early and
// late, and counts only between pages of one depth. The order is total, and a function of what
// is known of the pages alone.
func (c *Core) Before(a, b int32) bool {
	x, y := &c.pages[a], &c.pages[b]
	switch {
	case x.Use.Moment() != y.Use.Moment():
		return x.Use < y.Use
	case x.Depth != y.Depth:
		return x.Depth > y.Depth
	case x.Use != y.Use:
		return x.Use < y.Use
	case x.Tie != y.Tie:
		return x.Tie < y.Tie
	default:
		return a < b
	}
}
