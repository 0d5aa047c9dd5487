package actors

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/offloader/stores/guard"
	"github.com/kvactor/kvactor/windows"
)

// saver is the offloader's side of a store: the save pages of host memory, which hold
// bytes on their way to the store. It outlives the offloader's core, since the store's tasks may be
// reading.
//
//	device page ──copy on the offload stream──▶ save page ──read by a task──▶ store
//	host page   ──copied at once, by the CPU──▶ save page ──read by a task──▶ store
//
// Save pages are the bound of what is on its way to the store: without one nothing is
// copied.
//
//	unused ──take──▶ taken ──send──▶ at the store's actor or one of its tasks ──release──▶ unused
//	                   └──reclaim, when the change that has taken it has failed──▶ unused
type saver struct {
	config             *StoreConfig
	client             *guard.Store
	store, coordinator *mailbox.Mailbox
	encoders           chan struct{} // has a value for each job that is encoded now
	written            atomic.Int64  // objects since the last Flush
	// closed when the store's actor has stopped, which ends no job then
	stopped chan struct{}

	// mu is of the fields below it: tasks of the store's actor give save pages back, and the
	// coordinator asks how many there are.
	mu      sync.Mutex
	unused  [][]messages.PageID // save pages, by PoolID; nil: the pool has none
	awaited bool                // pages may wait for save pages

	// What follows is of the offloader's actor alone.
	taken  []savedPage // save pages of the change under way
	copied []savedPage // those of them that have the bytes of host pages
}

// savedPages are pages on their way to the store, whose save pages can be read when the
// ticket has passed.
type savedPages struct {
	items  []savedPage
	ticket messages.Ticket
}

// Abort does nothing: no caller waits for it.
func (*savedPages) Abort(error) {}

// savedPage is one of them, and the save page that has its bytes.
type savedPage struct {
	pool  messages.PoolID
	block protocol.BlockID
	page  messages.PageID
}

// evicts tells whether there is a store that gets what host memory drops.
func (s *saver) evicts() bool { return s != nil && s.config.Save == SaveHostEvict }

// open gives the saver its save pages, so many in each pool, and those whom it tells.
//
// Save pages stand behind the other host pages of a pool: the core never evicts them nor
// puts a block there.
func (s *saver) open(pages []windows.HostPages, store, coordinator *mailbox.Mailbox) {
	s.store, s.coordinator = store, coordinator
	s.unused = make([][]messages.PageID, len(pages))
	for p := range pages {
		n, all := pages[p].Save, pages[p].Total()
		for page := all - n; page < all; page++ {
			s.unused[p] = append(s.unused[p], messages.PageID(page))
		}
	}
}

// Room implements coordinator.SaveGate: there is room for as many pages as there are save pages
// that are not in use. A pool without save pages takes none, and no pool does while the breaker
// is open.
func (s *saver) Room(room []int) {
	refuses := s.client.Refuses()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = true
	for p := range room {
		room[p] = len(s.unused[p])
		if refuses || s.unused[p] == nil {
			room[p] = -1
		}
	}
}

// Dropped implements coordinator.SaveGate: it counts pages that were not saved.
func (s *saver) Dropped(pages int) { s.client.Dropped(pages) }

// take gives a save page, NoPage if all are in use.
func (s *saver) take(p messages.PoolID) messages.PageID {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.unused[p])
	if n == 0 {
		s.client.Dropped(1)
		return messages.NoPage
	}
	page := s.unused[p][n-1]
	s.unused[p] = s.unused[p][:n-1]
	s.taken = append(s.taken, savedPage{pool: p, page: page})
	return page
}

// reclaim takes back what a change had taken that has failed since. No copy is under way.
func (s *saver) reclaim() {
	taken := s.taken
	s.taken, s.copied = nil, nil
	s.release(taken)
}

// release takes save pages back that no one uses any more, and tells the coordinator if pages wait
// for them.
func (s *saver) release(items []savedPage) {
	if len(items) == 0 {
		return
	}
	s.mu.Lock()
	for i := range items {
		s.unused[items[i].pool] = append(s.unused[items[i].pool], items[i].page)
	}
	awaited := s.awaited
	s.awaited = false
	s.mu.Unlock()
	if awaited {
		s.coordinator.PostUserMessage(&notSaved{})
	}
}

// send ends a change: it gives the store's actor what was copied from host pages, and what the
// copies of the list bring when the ticket has passed.
func (s *saver) send(list []offloader.Save, after messages.Ticket) {
	if len(list)+len(s.copied) == 0 {
		return
	}
	m := &savedPages{items: s.copied, ticket: after}
	s.taken, s.copied = s.taken[:0], nil
	for i := range list {
		it := savedPage{pool: list[i].Pool, block: list[i].Block, page: list[i].To}
		if list[i].Failed {
			s.release([]savedPage{it})
			s.client.Dropped(1)
			continue
		}
		m.items = append(m.items, it)
	}
	s.store.PostUserMessage(m)
}

// savePages orders the copies of device pages to save pages and reads host pages.
//
// A host page is copied at once and a device page by a copy on its stream: the CPU cannot
// read device memory. Lost says which pages the coordinator must not take for saved.
func (a *offloaderActor) savePages(m *protocol.SavePages) {
	var list []offloader.Save
	m.Lost = m.Lost[:0]
	for i := range m.Items {
		it := &m.Items[i]
		page, tier, _ := it.From.Page()
		if tier == messages.Secondary {
			if !a.copyHost(it.Pool, it.Block, page) {
				m.Lost = append(m.Lost, *it)
			}
			continue
		}
		to := a.saver.take(it.Pool)
		if to == messages.NoPage {
			m.Lost = append(m.Lost, *it)
			continue
		}
		list = append(list, offloader.Save{Pool: it.Pool, Block: it.Block, From: page, To: to})
	}
	a.core.PlanSaves(list)
	last := a.submitPlanned()
	for i := range list {
		if s := &list[i]; s.Failed {
			m.Lost = append(m.Lost, protocol.SaveItem{Pool: s.Pool, Block: s.Block})
		}
	}
	a.saver.send(list, last)
}

// saveEvicted copies what is being displaced from host memory, before anything is written
// there.
//
// The caller submits the copies that overwrite these pages only after this has returned.
func (a *offloaderActor) saveEvicted(list []offloader.Displaced) {
	if len(list) == 0 {
		return
	}
	refuses := a.saver.client.Refuses()
	for _, d := range list {
		switch {
		case d.Priority < a.saver.config.MinPriority:
		case refuses:
			a.saver.client.Dropped(1)
		default:
			a.copyHost(d.Pool, d.Block, d.Page)
		}
	}
}

// copyHost copies a host page to a save page, and tells whether it did. A page that is
// still being written to is not waited for unless the configuration says so: the actor would
// hold up every request.
func (a *offloaderActor) copyHost(
	pool messages.PoolID, block protocol.BlockID, page messages.PageID,
) bool {
	device := a.streams.device
	if t := a.core.Written(pool, page); !t.IsZero() && !device.Done(t) {
		if !a.saver.config.WaitForCopies || device.Sync(a.background.ctx, t) != nil {
			a.saver.client.Dropped(1)
			return false
		}
	}
	to := a.saver.take(pool)
	if to == messages.NoPage {
		return false
	}
	from := gpu.Slot{Pool: a.streams.pools[pool], Tier: messages.Secondary, Page: page}
	// The checker has one clock for the CPU, so it is told of reads by the actor alone: a task that
	// reads a save page meanwhile would make it report what is in order.
	defer gpu.HostRead(device, from)()
	defer gpu.HostWrite(device, gpu.Slot{Pool: from.Pool, Tier: messages.Secondary, Page: to})()
	for r := range gpu.Ranks(device) {
		copy(gpu.HostShare(device, r, from.Pool, to), gpu.HostShare(device, r, from.Pool, page))
	}
	a.saver.copied = append(a.saver.copied, savedPage{pool: pool, block: block, page: to})
	return true
}

// loadPages takes host pages for contents from a store and writes them on a task, at the
// end of which the answer is sent.
func (a *offloaderActor) loadPages(m *protocol.LoadPages) {
	displaced := a.core.Load(m)
	if a.saver.evicts() {
		a.saveEvicted(displaced)
		a.saver.send(nil, messages.Ticket{})
	}
	device := a.streams.device
	var pages []loadedPage
	var tickets []messages.Ticket
	for p := range m.Pages {
		for i, page := range m.Pages[p] {
			tickets = a.core.Accesses(tickets, messages.PoolID(p), page)
			pages = append(pages, loadedPage{a.streams.pools[p], page, m.Bytes[p][i]})
		}
	}
	a.wait(&wait{message: m, tickets: tickets, then: func() error {
		load(device, pages)
		return nil
	}})
}

// loadFailed ends the actor: host pages were taken and not written, so what the core
// knows of host memory is not true. With the engine's end there is nothing to mend.
func (a *offloaderActor) loadFailed(err error) {
	if a.background.ctx.Err() == nil {
		panic(fmt.Sprintf("offloader: contents of a store were not written to host memory: %v", err))
	}
}

// loadedPage is the contents of a host page. The page is no block's until the answer, so no other
// copy uses it.
type loadedPage struct {
	pool  gpu.Pool
	page  messages.PageID
	bytes []byte
}

// load writes contents to host pages.
func load(device gpu.Device, pages []loadedPage) {
	var size int64
	for i := range pages {
		size += int64(len(pages[i].bytes))
	}
	inParts(len(pages), size, func(from, to int) {
		for _, p := range pages[from:to] {
			end := gpu.HostWrite(device, gpu.Slot{Pool: p.pool, Tier: messages.Secondary, Page: p.page})
			gpu.WriteHostPage(device, p.pool, p.page, p.bytes)
			end()
		}
	})
}

// partBytes is how many bytes of pages are worth a goroutine: to copy so many takes about a
// hundred times as long as to start one.
const partBytes = 1 << 20

// inParts divides work on n pages of size bytes in all into ranges [from, to), runs do on them
// on up to GOMAXPROCS goroutines and waits for them. Little work is one range, on the caller's
// goroutine.
func inParts(n int, size int64, do func(from, to int)) {
	parts := min(int64(runtime.GOMAXPROCS(0)), int64(n), size/partBytes)
	if parts <= 1 {
		do(0, n)
		return
	}
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() { do(int(int64(n)*i/parts), int(int64(n)*(i+1)/parts)) })
	}
	all.Wait()
}
