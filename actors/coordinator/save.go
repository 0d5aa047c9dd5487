package coordinator

import (
	"container/list"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// StoreConfig says what is saved to a store beyond host memory. The coordinator only names
// pages: their bytes go from the offloader to the store's actor, and no request waits for them.
type StoreConfig struct {
	Policy SavePolicy
	Gate   SaveGate
}

// SaveGate tells what there is room for on the way to the store.
type SaveGate interface {
	// Room sets room[p] to how many pages of pool p can be saved now, or to -1 if the store takes
	// none of them. What it has no room for waits: NotSaved says that there is room again.
	Room(room []int)
	// Dropped counts pages that are not saved: they have left the pool before there was room, the
	// store takes none, or with SaveHostEvict they have left memory by another way than host
	// memory's.
	Dropped(pages int)
}

// SavePolicy says when a page is saved. SaveOnReuse writes least, since a block that no second
// prompt asks for is never saved. SaveOnCommit writes whatever is stored. SaveHostEvict
// writes what would be lost otherwise, and depends on host memory.
type SavePolicy uint8

// The policies.
const (
	SaveOnReuse   SavePolicy = iota // when an admission reuses the block whole, all its pages
	SaveOnCommit                    // when the page is first stored in the pool
	SaveHostEvict                   // when host memory drops it, which the offloader sees to
)

// saveMark is what is known of the page of one block in one pool: nothing, that it waits, or that
// it is done.
type saveMark struct {
	waits *list.Element // of the pages that wait; nil: it does not
	done  bool          // it has been offered to the store, or came from there
}

// saves notes which pages are to be saved. With no store it notes nothing.
//
//	noteEffect, noteReuse ─▶ waiting ─▶ (between rounds, with room) saving ─▶ the offloader
//
// A mark keeps a page from being offered twice; a pool that loses a block clears it.
type saves struct {
	config  *StoreConfig // nil: no store
	waiting []list.List  // by pool, of waitingPage: the pages to be saved, the oldest first
	offered int64        // pages that were made to wait
	marks   [][]saveMark
	room    []int // in each pool, as the gate has last said
}

// waitingPage is the page of a block, the number-th that was made to wait.
type waitingPage struct {
	block  protocol.BlockID
	number int64
}

// maxWaiting is how many pages of a pool wait for room at most.
const maxWaiting = 1 << 16

func newSaves(c *Config) *saves {
	n := len(c.Pools)
	return &saves{config: c.Store, waiting: make([]list.List, n), marks: make([][]saveMark, n),
		room: make([]int, n)}
}

// waits is how many pages wait of those that were made to wait up to a number.
func (s *saves) waits(until int64) (n int) {
	for p := range s.waiting {
		for e := s.waiting[p].Front(); e != nil; e = e.Next() {
			if e.Value.(waitingPage).number <= until {
				n++
			}
		}
	}
	return n
}

// offer makes a page wait, unless it was offered before.
func (s *saves) offer(p messages.PoolID, b protocol.BlockID) {
	m := s.mark(p, b)
	switch {
	case m.done || m.waits != nil:
	// The oldest are the first to be lost.
	case s.waiting[p].Len() == maxWaiting:
		s.drop(1)
	default:
		s.offered++
		m.waits = s.waiting[p].PushBack(waitingPage{b, s.offered})
	}
}

// take takes the oldest pages of a pool that wait, as many as there is room for, all if the store
// takes none.
func (s *saves) take(p messages.PoolID, taken []protocol.BlockID) []protocol.BlockID {
	for n := s.room[p]; n != 0 && s.waiting[p].Len() > 0; n-- {
		b := s.waiting[p].Front().Value.(waitingPage).block
		s.stopWaiting(p, b)
		taken = append(taken, b)
	}
	return taken
}

// stopWaiting makes a page one of which nothing is known, and tells whether it has waited.
func (s *saves) stopWaiting(p messages.PoolID, b protocol.BlockID) (waited bool) {
	m := s.mark(p, b)
	if waited = m.waits != nil; waited {
		s.waiting[p].Remove(m.waits)
	}
	*m = saveMark{}
	return waited
}

// lost forgets what is known of a page, which the pool has lost.
func (s *saves) lost(p messages.PoolID, b protocol.BlockID) {
	if s.stopWaiting(p, b) {
		s.drop(1)
	}
}

// drop counts pages that are not saved.
func (s *saves) drop(pages int) {
	if pages > 0 {
		s.config.Gate.Dropped(pages)
	}
}

// lose counts pages whose contents have left memory by another way than out of host memory.
// With SaveHostEvict they were not saved; other policies have offered them before.
func (s *saves) lose(pages int) {
	if s.config != nil && s.config.Policy == SaveHostEvict {
		s.drop(pages)
	}
}

// on tells whether pages are saved by what happens in the coordinator.
func (s *saves) on() bool { return s.config != nil && s.config.Policy != SaveHostEvict }

// mark is the mark of a page, to be read or changed. Ids of blocks are small numbers that the
// tree gives out again, so an array holds the marks; the mark of a block that a pool has lost
// must be empty before the id stands for another one.
func (s *saves) mark(p messages.PoolID, b protocol.BlockID) *saveMark {
	for int(b) >= len(s.marks[p]) {
		s.marks[p] = append(s.marks[p], saveMark{})
	}
	return &s.marks[p][b]
}

// reset forgets everything: after a failure pages may be offered once more, and no one can
// tell what has reached the store's actor.
func (s *saves) reset() {
	s.drop(s.waits(s.offered))
	for p := range s.marks {
		s.waiting[p].Init()
		clear(s.marks[p])
	}
}

// forget makes pages that were offered and are not in the store ones that may be offered
// again. An id may stand for another block by now: then that block is offered once more.
// With SaveOnCommit the moment of the page is over.
func (s *saves) forget(items []protocol.SaveItem) {
	if !s.on() || s.config.Policy != SaveOnReuse {
		return
	}
	for i := range items {
		s.mark(items[i].Pool, items[i].Block).done = false
	}
}

// NotSaved tells the coordinator of pages that the store has not got after all: the next
// admission that reuses their blocks offers them again. Without items it says that there is
// room for pages that wait. It may come at any time.
func (c *Coordinator) NotSaved(items []protocol.SaveItem) {
	c.out.saves.forget(items)
	c.run()
}

// noteEffect notes what the tree has changed.
func (s *saves) noteEffect(e *protocol.Effect) {
	if !s.on() {
		return
	}
	offers := e.Kind == protocol.Attach && s.config.Policy == SaveOnCommit
	for _, b := range e.Blocks {
		switch {
		case e.Kind == protocol.Detach || e.Kind == protocol.HostForget:
			// Should contents of that name come back, they are a new page.
			s.lost(e.Pool, b)
		case e.Kind == protocol.HostAttach:
			// These contents have just come from the store.
			s.stopWaiting(e.Pool, b)
			s.mark(e.Pool, b).done = true
		// Also of contents that come back from host memory, which were stored before.
		case offers:
			s.offer(e.Pool, b)
		}
	}
}

// noteMoves notes what pools lose by eviction. A move between the tiers changes no mark,
// because the contents stay the same.
func (s *saves) noteMoves(moves []protocol.BlockMove) {
	if !s.on() {
		return
	}
	for i := range moves {
		if moves[i].To == protocol.Nowhere {
			s.lost(moves[i].Pool, moves[i].Block)
		}
	}
}

// noteReuse notes blocks that an admission reuses whole.
func (s *saves) noteReuse(blocks []protocol.BlockID) {
	if !s.on() || s.config.Policy != SaveOnReuse {
		return
	}
	for _, b := range blocks {
		for p := range s.marks {
			s.offer(messages.PoolID(p), b)
		}
	}
}

// saving asks for the bytes of pages that wait, as many as there is room for. It serves no
// request: it goes before the next one, which could evict the pages.
//
//	begin ─▶ locating ─▶ ordering ─▶ (the store's actor gets the bytes when they are there)
//
// It is no transaction, since no caller waits for it. A failure drops the candidates: what was
// not saved is missing in the store, and nothing else depends on it.
type saving struct {
	*shared
	stages[saving]
	pools  []messages.PoolID // of the pages that are looked for; locate has their blocks
	locate protocol.Locate
	record protocol.SavePages
}

// begin asks the tree for the places of pages that there is room for, or of all to count them if
// the store takes none. It returns false if there are none.
func (s *saving) begin() bool {
	all, asked := s.out.saves, false
	s.pools, s.locate.Blocks = s.pools[:0], s.locate.Blocks[:0]
	for p := range all.waiting {
		if !asked && all.waiting[p].Len() > 0 {
			all.config.Gate.Room(all.room)
			asked = true
		}
		s.locate.Blocks = all.take(messages.PoolID(p), s.locate.Blocks)
		for len(s.pools) < len(s.locate.Blocks) {
			s.pools = append(s.pools, messages.PoolID(p))
		}
	}
	if len(s.pools) == 0 {
		return false
	}
	s.locate.Epoch = s.kernel.epoch
	s.kernel.active = s
	s.wait(s, "saving: locating", (*saving).choose)
	s.kernel.toTree(&s.locate)
	return true
}

// choose asks the offloader for the bytes of the pages that are to be saved.
func (s *saving) choose() {
	all := s.out.saves
	s.record.Epoch, s.record.Items = s.kernel.epoch, s.record.Items[:0]
	for i, p := range s.pools {
		b := s.locate.Blocks[i]
		from := s.locate.Pages[p][i]
		switch {
		// What is not there may come later, and what is worth too little may be worth more when the
		// block is reused the next time.
		case from == protocol.Nowhere || !s.locate.Saveable[i]:
		case all.room[p] < 0:
			all.drop(1)
		default:
			all.mark(p, b).done = true
			s.record.Items = append(s.record.Items, protocol.SaveItem{Pool: p, Block: b, From: from})
		}
	}
	if len(s.record.Items) == 0 {
		s.kernel.active = nil
		return
	}
	s.wait(s, "saving: ordering", (*saving).end)
	s.kernel.toOffloader(&s.record)
}

func (s *saving) end() {
	s.out.saves.forget(s.record.Lost)
	s.kernel.active = nil
}

// flush serves Flush, whose answer is that of the store's actor: everything that was to be
// saved and had room has been ordered before, since saving goes before the next request. Only
// the sequence is looked for here, because the store's actor knows none.
type flush struct{ *shared }

func (t *flush) start(request any) {
	r := request.(*protocol.Flush)
	all := t.out.saves
	if r.Until == 0 {
		r.Until = all.offered
	}
	r.Err, r.Waiting = nil, all.waits(r.Until)
	if r.Sequence != 0 {
		if _, refusal := t.sequences.Find(r.Sequence); refusal != nil {
			r.Err = refusal
			t.kernel.reply()
			return
		}
	}
	t.kernel.deliver(Port.Store)
}
