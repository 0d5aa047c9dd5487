package offloader

import (
	"container/list"
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// pageState is what a host page holds.
type pageState uint8

const (
	// free pages hold nothing.
	free pageState = iota
	// sole pages hold the only contents of a block.
	sole
	// clean pages hold the same bytes as a device page: an onboard left them.
	clean
	// ahead pages hold the same bytes as a device page: they were copied before the
	// device page was evicted. Decisions and counts take them for free.
	ahead
	// loading pages get contents from a store. Their block is known when the tree has
	// attached them.
	loading
	states
)

var stateNames = [states]string{"free", "sole", "clean", "ahead", "loading"}

// hostPage is the record of one page of host memory. Unless the page is free or loading,
// hostPool.byBlock[block] is the page. Only sole pages have pins. What decides which sole or
// clean page is displaced is in hostPool.order.
type hostPage struct {
	block protocol.BlockID
	pins  int32 // one more for each read by the Move under way
	state pageState
	at    *list.Element // of an ahead page: its place in hostPool.ahead
}

// hostPool is the host memory of one pool.
//
// Sole pages without pins and clean copies are in an order of eviction, in which copies come
// first; ahead copies have a list of their own. Pages that the current Move reads are in
// neither.
//
// The counts of all states add up to len(pages), and counts[sole] + counts[clean] +
// counts[loading] ≤ limit.
type hostPool struct {
	name  string
	pages []hostPage
	// Block numbers are dense, since the tree uses them again, so a slice serves as the map.
	byBlock []messages.PageID // by BlockID, grown on demand
	// of the contents of sole and clean pages, on their tenants' accounts with loading ones
	order  *evict.Core
	ahead  list.List // of the ahead pages, as messages.PageID, that named the longest time ago first
	counts [states]int
	// limit is how many pages may be sole, clean or loading; the others are spare.
	limit  int
	copies int32 // clean copies made so far
	// idle is a ring of the free pages. The page that has been free for the longest
	// time is taken first, because its last transfer is the most likely to be over.
	// size = counts[free]. The ring has room for all pages, so it never grows.
	idle       []messages.PageID
	head, size int
}

// init sizes the host memory; all pages are free. Quotas are shares of the limit: the spare
// pages belong to no tenant.
func (h *hostPool) init(c PoolConfig, quotas []windows.Quota) {
	h.name = c.Name
	n := c.HostPages + c.SparePages
	h.limit = c.HostPages
	h.order = evict.New(evict.Config{
		Pages: n, Quotas: quotas, Total: h.limit, Policy: evict.Options{
			Name: c.Policy, Noted: true, BlockTokens: c.TokensPerBlock,
		},
	})
	h.pages = make([]hostPage, n)
	h.idle = make([]messages.PageID, n)
	h.counts[free] = n
	h.size = n
	for i := range h.pages {
		h.pages[i] = hostPage{block: protocol.NoBlock}
		h.idle[i] = messages.PageID(i)
	}
}

// find is the page that holds a block, or NoPage.
func (h *hostPool) find(b protocol.BlockID) messages.PageID {
	if int(b) >= len(h.byBlock) {
		return messages.NoPage
	}
	return h.byBlock[b]
}

// mustSole is the sole page of a block. It panics if there is none; purpose names the
// operation.
//
// The tree names blocks that it believes to be in host memory only. If it is wrong, contents
// are lost or doubled already, so going on is not possible.
func (h *hostPool) mustSole(b protocol.BlockID, purpose string) messages.PageID {
	p := h.findSole(b)
	if p == messages.NoPage {
		panic(fmt.Sprintf("offloader: pool %s: %s of block %d, whose host contents are %s",
			h.name, purpose, b, h.stateOf(h.find(b))))
	}
	return p
}

// findSole is the page that holds the only contents of a block, or NoPage.
func (h *hostPool) findSole(b protocol.BlockID) messages.PageID {
	if p := h.find(b); p != messages.NoPage && h.pages[p].state == sole {
		return p
	}
	return messages.NoPage
}

// stateOf names the state of a page, or of NoPage.
func (h *hostPool) stateOf(p messages.PageID) string {
	if p == messages.NoPage {
		return "none"
	}
	return stateNames[h.pages[p].state]
}

// setBlock makes a block the contents of a page.
//
// The caller makes sure that the block has no other page: one that was left would never be
// found again.
func (h *hostPool) setBlock(p messages.PageID, b protocol.BlockID) {
	for len(h.byBlock) <= int(b) {
		h.byBlock = append(h.byBlock, messages.NoPage)
	}
	h.byBlock[b] = p
	h.pages[p].block = b
}

// dequeue makes a page one that is not displaced.
func (h *hostPool) dequeue(p messages.PageID) {
	if h.order.Waits(int32(p)) {
		h.order.Remove(int32(p))
	}
	if at := h.pages[p].at; at != nil {
		h.ahead.Remove(at)
		h.pages[p].at = nil
	}
}

// enqueue makes a page one that may be displaced, unless it has no contents or has pins.
//
// It may be called after any change: pages that must not be displaced are passed over here
// and not by each caller.
func (h *hostPool) enqueue(p messages.PageID) {
	pg := &h.pages[p]
	if pg.pins == 0 && (pg.state == sole || pg.state == clean) {
		h.order.Add(int32(p))
	}
}

// counts tells whether pages of a state are on the account of a tenant. Ahead copies are on
// none, because decisions count their pages as free.
func (s pageState) counts() bool { return s == sole || s == clean || s == loading }

// setState changes the state of a page that may not be displaced, from one that counts for a
// tenant or to one that does not.
func (h *hostPool) setState(p messages.PageID, s pageState) {
	pg := &h.pages[p]
	if pg.state == sole || pg.state == clean {
		h.order.Forget(int32(p))
	}
	if pg.state.counts() && !s.counts() {
		h.order.Leave(int32(p))
	}
	h.counts[pg.state]--
	h.counts[s]++
	pg.state = s
}

// setTenant changes the state of a page to one that counts for a tenant.
//
// A clean page is on the account of the tenant that offloaded its block. Another tenant may
// have onboarded the block since and be the one that loses it now. The page then moves to
// that tenant's account, beyond its quota if it must: the contents have their room already.
func (h *hostPool) setTenant(p messages.PageID, s pageState, t protocol.Tenant) {
	h.setState(p, free)
	h.setState(p, s)
	h.order.Join(int32(p), t)
}

// freePage frees a page, whatever it holds.
func (h *hostPool) freePage(p messages.PageID) {
	h.dequeue(p)
	pg := &h.pages[p]
	h.byBlock[pg.block] = messages.NoPage
	pg.pins = 0
	h.setState(p, free)
	pg.block = protocol.NoBlock
	h.idle[(h.head+h.size)%len(h.idle)] = p
	h.size++
}

// takeFree takes the page that has been free for the longest time, or else the page of
// the ahead copy whose device page was named the longest time ago.
//
// The page keeps the state free until the caller gives it contents. There is one whenever
// sole + clean is below the number of pages, which makeRoom and PlanAhead make sure of.
func (h *hostPool) takeFree() messages.PageID {
	// Copies ahead are the only pages that can be given up without a decision.
	if h.size == 0 {
		h.freePage(h.ahead.Front().Value.(messages.PageID))
	}
	p := h.idle[h.head]
	h.head = (h.head + 1) % len(h.idle)
	h.size--
	return p
}

// makeClean makes a sole page a clean copy: a device page holds the block now.
//
// Its pins end, since a pin protects the block and the block is on the device now.
func (h *hostPool) makeClean(p messages.PageID, stamp uint64) {
	h.dequeue(p)
	h.pages[p].pins = 0
	c := h.order.Page(int32(p)).Contents
	h.setState(p, clean)
	h.copies++
	c.Use, c.Tie, c.Copy, c.Useless = protocol.Use(stamp<<1), h.copies, true, false
	h.order.Store(int32(p), c)
	h.enqueue(p)
}

// count counts the pages as hosts see them: ahead copies are free, spare pages do not
// exist. Outside a Move only pages with pins may not be displaced.
func (h *hostPool) count() inspect.TierPages {
	c := inspect.TierPages{Total: h.limit, Cached: h.order.Waiting()}
	c.Used = h.counts[sole] + h.counts[clean] - c.Cached
	c.Free = c.Total - c.Used - c.Cached
	return c
}

// Sample answers the states of host pages at equal distances. As for count, spare pages do
// not exist: of the free pages in the sample their share is left out.
func (o *Offloader) Sample(m *protocol.SampleHost) {
	m.Samples = m.Samples[:0]
	var ids []messages.PageID
	for p := range o.hosts {
		h := &o.hosts[p]
		ids = protocol.SampledPages(ids[:0], len(h.pages), m.Pages)
		samples := make([]inspect.PageSample, 0, len(ids))
		spare := len(ids) * (len(h.pages) - h.limit) / max(1, len(h.pages))
		for _, id := range ids {
			s := h.sample(id)
			if s.State == inspect.PageFree && spare > 0 {
				spare--
				continue
			}
			samples = append(samples, s)
		}
		m.Samples = append(m.Samples, samples)
	}
}

// sample describes one page.
func (h *hostPool) sample(id messages.PageID) inspect.PageSample {
	pg, s := &h.pages[id], inspect.PageSample{Page: id}
	switch pg.state {
	case sole:
		g := h.order.Page(int32(id))
		s.State, s.Priority, s.Age = inspect.PageCached, g.Priority, uint64(g.Use)
		if pg.pins > 0 {
			s.State = inspect.PageUsed
		}
	case clean:
		s.State, s.Priority = inspect.PageCopy, h.order.Page(int32(id)).Priority
	case loading:
		s.State = inspect.PageUsed
	default: // Decisions take copies ahead for free pages, and so does who looks at them.
	}
	return s
}
