package offloader

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
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

// hostPage is the record of one page of host memory. Unless the page is free,
// hostPool.byBlock[block] is the page. Only sole pages have pins.
//
// A page that is not free is in the order of its state exactly if pins = 0 and it is not
// protected; then heapIndex is its index in the heap there, otherwise it is negative. In a queue heapIndex is queued. Where sole pages have
// pieces it is n for a page that is listed in piece n, and ^n for one that belongs to piece n but may not be displaced.
type hostPage struct {
	age       uint64 // sole: the use; clean and ahead: the stamp of the request that made the copy
	block     protocol.BlockID
	depth     int32
	pins      int32
	heapIndex int32 // in the order of its state, see pieceOf; negative: in none
	priority  messages.Priority
	state     pageState
	protected bool   // the Move under way reads it
	made      uint32 // clean: a running number; ahead: the stamp of lastNear; sole: see links
}

// hostPool is the host memory of one pool.
//
// Each state has an order of the pages that may be displaced: sole pages without pins,
// clean copies, ahead copies. There is one for each state because clean copies are
// displaced before all sole pages. Pages that the current Move reads are in no order.
//
// The counts of all states add up to len(pages), and counts[sole] + counts[clean] ≤ limit.
type hostPool struct {
	name  string
	pages []hostPage
	// Block numbers are dense, since the tree uses them again, so a slice serves as the map.
	byBlock  []messages.PageID // by BlockID, grown on demand
	orders   [states]order     // that of free is not used; with accounts only that of ahead is
	counts   [states]int
	pinned   int       // sole pages with pins
	accounts *accounts // nil: no quotas
	pieces   *pieces   // of the sole pages; nil: their order is that of priority and last use
	// displaced is the sole page that makeRoom has freed last.
	displaced displacedPage
	// limit is how many pages may be sole or clean; the others are spare.
	limit  int
	copies uint32 // clean copies made so far
	// idle is a ring of the free pages. The page that has been free for the longest
	// time is taken first, because its last transfer is the most likely to be over.
	// size = counts[free]. The ring has room for all pages, so it never grows.
	idle       []messages.PageID
	head, size int
}

// init sizes the host memory; all pages are free.
func (h *hostPool) init(c PoolConfig, quotas []windows.Quota) {
	h.name = c.Name
	n := c.HostPages + c.SparePages
	h.limit = c.HostPages
	h.accounts = newAccounts(quotas, n, h.limit)
	h.pages = make([]hostPage, n)
	h.idle = make([]messages.PageID, n)
	h.counts[free] = n
	h.size = n
	h.orderSole(c.Forecast)
	// Index 0 is a place in a heap, so a zeroed record would claim to be queued.
	for i := range h.pages {
		h.pages[i] = hostPage{block: protocol.NoBlock, heapIndex: -1}
		h.idle[i] = messages.PageID(i)
	}
}

// orderSole makes the orders of the sole pages, of which there are none: of pieces with a forecast, otherwise with queues.
func (h *hostPool) orderSole(forecast bool) {
	// All orders of the pool share the links, since a page is in one of them at a time.
	k := newLinks(h.pages)
	empty := order{queues: queues{links: k}}
	if forecast {
		h.pieces = newPieces(k)
		empty = order{pieces: h.pieces}
	}
	h.orders[sole] = empty
	if h.accounts != nil {
		for t := range h.accounts.list {
			h.accounts.list[t].orders[sole] = empty
		}
	}
}

// find is the page that holds a block, or NoPage.
func (h *hostPool) find(b protocol.BlockID) messages.PageID {
	if int(b) >= len(h.byBlock) {
		return messages.NoPage
	}
	return h.byBlock[b]
}

// mustSole is the sole page of a block. It panics if there is none; why names the
// operation.
//
// The tree names blocks that it believes to be in host memory only. If it is wrong, contents
// are lost or doubled already, so going on is not possible.
func (h *hostPool) mustSole(b protocol.BlockID, purpose string) messages.PageID {
	p := h.find(b)
	if p == messages.NoPage || h.pages[p].state != sole {
		panic(fmt.Sprintf("offloader: pool %s: %s of block %d, whose host contents are %s", h.name, purpose, b, h.stateOf(p)))
	}
	return p
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

// dequeue removes a page from its order. It comes before any change to the fields that
// the order compares.
func (h *hostPool) dequeue(p messages.PageID) {
	if pg := &h.pages[p]; pg.heapIndex >= 0 {
		h.orderOf(p).remove(h.pages, p)
	}
}

// enqueue adds a page to the order of its state, unless pins or the current Move
// protect it.
//
// It may be called after any change: pages that must not be displaced are passed over here
// and not by each caller.
func (h *hostPool) enqueue(p messages.PageID) {
	pg := &h.pages[p]
	if pg.state == free || pg.state == loading || pg.protected || pg.pins > 0 {
		return
	}
	h.orderOf(p).push(h.pages, p)
}

// setState changes the state of a page that is in no order. Its tenant must be set. What was known of a sole page is forgotten.
func (h *hostPool) setState(p messages.PageID, s pageState) {
	pg := &h.pages[p]
	if pg.state == sole && s != sole && h.pieces != nil {
		h.pieces.leave(p)
	}
	h.counts[pg.state]--
	h.counts[s]++
	if h.accounts != nil {
		h.accounts.account(p, pg.state, s)
	}
	pg.state = s
}

// setPins changes the pins of a page that is in no order.
//
// It counts pages with pins and not pins, since a page is used however many it has.
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

// freePage frees a page, whatever it holds.
func (h *hostPool) freePage(p messages.PageID) {
	// The page leaves the order of its state before the state changes, since orderOf goes
	// by the state.
	h.dequeue(p)
	pg := &h.pages[p]
	h.byBlock[pg.block] = messages.NoPage
	h.setPins(p, 0)
	h.setState(p, free)
	pg.block = protocol.NoBlock
	h.idle[(h.head+h.size)%len(h.idle)] = p
	h.size++
}

// takeFree takes the page that has been free for the longest time, or else the page of
// the stalest ahead copy.
//
// The page keeps the state free until the caller gives it contents. There is one whenever
// sole + clean is below the number of pages, which makeRoom and PlanAhead make sure of.
func (h *hostPool) takeFree() messages.PageID {
	// Copies ahead are the only pages that can be given up without a decision.
	if h.size == 0 {
		h.freePage(h.stalest())
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
	h.setPins(p, 0)
	h.setState(p, clean)
	h.copies++
	h.pages[p].age, h.pages[p].made = stamp, h.copies
	h.enqueue(p)
}

// count counts the pages as hosts see them: ahead copies are free, spare pages do not
// exist.
func (h *hostPool) count() inspect.TierPages {
	c := inspect.TierPages{
		Total:  h.limit,
		Used:   h.pinned,
		Cached: h.counts[sole] - h.pinned + h.counts[clean],
	}
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
		for _, id := range ids {
			samples = append(samples, h.sample(id))
		}
		spare := len(samples) * (len(h.pages) - h.limit) / max(1, len(h.pages))
		samples = slices.DeleteFunc(samples, func(s inspect.PageSample) bool {
			drop := s.State == inspect.PageFree && spare > 0
			if drop {
				spare--
			}
			return drop
		})
		m.Samples = append(m.Samples, samples)
	}
}

// sample describes one page.
func (h *hostPool) sample(id messages.PageID) inspect.PageSample {
	pg, s := &h.pages[id], inspect.PageSample{Page: id}
	switch pg.state {
	case sole:
		s.State, s.Priority, s.Age = inspect.PageCached, pg.priority, pg.age
		if pg.pins > 0 {
			s.State = inspect.PageUsed
		}
	case clean:
		s.State, s.Priority = inspect.PageCopy, pg.priority
	case loading:
		s.State = inspect.PageUsed
	default: // Decisions take copies ahead for free pages, and so does who looks at them.
	}
	return s
}
