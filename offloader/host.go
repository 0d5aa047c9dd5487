package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// pageState is what a host page holds.
type pageState uint8

const (
	// free: nothing.
	free pageState = iota
	// sole: the only contents of a block.
	sole
	// clean: the same as a device page holds.
	clean
	// ahead: the same, but copied before anyone asked. Decisions count the page
	// as free.
	ahead
	states
)

var stateNames = [states]string{"free", "sole", "clean", "ahead"}

// hostPage is one page of host memory. byBlock[block] is the page unless it is
// free. Pins are 0 unless it is sole.
type hostPage struct {
	age       uint64 // sole: the use; clean, ahead: stamp of the request that made it so, see also seen
	block     protocol.BlockID
	depth     int32
	pins      int32
	place     int32 // in the order of its state, −1: in none
	priority  messages.Priority
	state     pageState
	protected bool   // the Move under way reads it
	born      uint32 // clean: which of its pool's copies it is; ahead: stamp of the last look that saw it
}

// hostPool is the host memory of one pool.
//
// Sole pages that nobody pins, and clean copies, wait in the order of their
// going: lowest priority, then oldest, then deepest. Clean copies go before all
// sole pages, so each state has an order of its own. What the Move under way
// reads is in no order.
type hostPool struct {
	name     string
	pages    []hostPage
	byBlock  []messages.PageID // by BlockID, grown on demand
	orders   [states]order     // that of free is not used; with accounts only that of ahead is
	counts   [states]int
	pinned   int       // sole pages with pins
	accounts *accounts // nil: no quotas
	// limit is how many pages may be sole or clean; those beyond are spare.
	limit  int
	copies uint32 // clean copies made so far
	// idle is a ring of the free pages. The one free for the longest time is
	// taken first: its last transfer is the likeliest to be over.
	idle       []messages.PageID
	head, size int
}

func (h *hostPool) init(c PoolConfig, quotas []windows.Quota) {
	h.name = c.Name
	n := c.HostPages + c.SparePages
	h.limit = c.HostPages
	h.accounts = newAccounts(quotas, n, h.limit)
	h.pages = make([]hostPage, n)
	h.idle = make([]messages.PageID, n)
	h.counts[free] = n
	h.size = n
	for i := range h.pages {
		h.pages[i] = hostPage{block: protocol.NoBlock, place: -1}
		h.idle[i] = messages.PageID(i)
	}
}

// find gives the page that holds a block, or NoPage.
func (h *hostPool) find(b protocol.BlockID) messages.PageID {
	if int(b) >= len(h.byBlock) {
		return messages.NoPage
	}
	return h.byBlock[b]
}

// mustSole gives the page that is the only contents of a block.
func (h *hostPool) mustSole(b protocol.BlockID, why string) messages.PageID {
	p := h.find(b)
	if p == messages.NoPage || h.pages[p].state != sole {
		panic(fmt.Sprintf("offloader: pool %s: %s of block %d, whose host contents are %s", h.name, why, b, h.stateOf(p)))
	}
	return p
}

// stateOf names what a page, or NoPage, holds.
func (h *hostPool) stateOf(p messages.PageID) string {
	if p == messages.NoPage {
		return "none"
	}
	return stateNames[h.pages[p].state]
}

// hold makes block the contents of page p.
func (h *hostPool) hold(p messages.PageID, b protocol.BlockID) {
	for len(h.byBlock) <= int(b) {
		h.byBlock = append(h.byBlock, messages.NoPage)
	}
	h.byBlock[b] = p
	h.pages[p].block = b
}

// lift takes a page out of its order, before anything that decides its place changes.
func (h *hostPool) lift(p messages.PageID) {
	if pg := &h.pages[p]; pg.place >= 0 {
		h.orderOf(p).remove(h.pages, p)
	}
}

// settle puts a page where its state and pins and protection say.
func (h *hostPool) settle(p messages.PageID) {
	pg := &h.pages[p]
	if pg.state == free || pg.protected || pg.pins > 0 {
		return
	}
	h.orderOf(p).push(h.pages, p)
}

// become changes the state of a lifted page, whose tenant must be known.
func (h *hostPool) become(p messages.PageID, s pageState) {
	pg := &h.pages[p]
	h.counts[pg.state]--
	h.counts[s]++
	if h.accounts != nil {
		h.accounts.account(p, pg.state, s)
	}
	pg.state = s
}

// setPins changes the pins of a lifted page.
func (h *hostPool) setPins(p messages.PageID, pins int32) {
	pg := &h.pages[p]
	if pg.pins > 0 {
		h.pinned--
	}
	if pins > 0 {
		h.pinned++
	}
	pg.pins = pins
}

// release frees a page whatever it holds.
func (h *hostPool) release(p messages.PageID) {
	h.lift(p)
	pg := &h.pages[p]
	h.byBlock[pg.block] = messages.NoPage
	h.setPins(p, 0)
	h.become(p, free)
	pg.block = protocol.NoBlock
	h.idle[(h.head+h.size)%len(h.idle)] = p
	h.size++
}

// takeFree takes the page that has been free for the longest time, or else that
// of a copy ahead of demand.
func (h *hostPool) takeFree() messages.PageID {
	if h.size == 0 {
		h.release(h.stalest())
	}
	p := h.idle[h.head]
	h.head = (h.head + 1) % len(h.idle)
	h.size--
	return p
}

// yield makes the sole contents a clean copy: a device page holds the block now.
func (h *hostPool) yield(p messages.PageID, stamp uint64) {
	h.lift(p)
	h.setPins(p, 0)
	h.become(p, clean)
	h.copies++
	h.pages[p].age, h.pages[p].born = stamp, h.copies
	h.settle(p)
}

// tally counts the pages as the host of the engine sees them.
func (h *hostPool) tally() messages.PageCounts {
	c := messages.PageCounts{
		Total:  h.limit,
		Used:   h.pinned,
		Cached: h.counts[sole] - h.pinned + h.counts[clean],
	}
	c.Free = c.Total - c.Used - c.Cached
	return c
}
