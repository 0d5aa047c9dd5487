package coordinator

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// StoreConfig says what is saved to a store beyond host memory. The coordinator only names
// pages: their bytes go from the offloader to the store's actor, and no request waits for them.
type StoreConfig struct {
	Policy      SavePolicy
	MinPriority messages.Priority // pages below it are not saved
	Gate        SaveGate          // nil: there is always room
}

// SaveGate tells whether it is worth looking for pages to save. A store that hangs or fails
// takes none for seconds, in which each reuse would look for the same pages in vain.
type SaveGate interface {
	// Room sets room[p] if a page of pool p can be saved now.
	Room(room []bool)
	// Dropped counts pages that are not saved: there was no room, or with SaveHostEvict they have
	// left memory by another way than host memory's.
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

// saveMark is what is known of the page of one block in one pool. The mark of a page that was
// looked for in vain is not saveDone: should the pool get the page later, it is a candidate
// then.
type saveMark uint8

const (
	saveUnknown saveMark = iota
	saveDone             // it has been offered to the store, or came from there
	saveAbsent           // the pool held no page when it was looked for
)

// saves notes which pages are to be saved. With no store it notes nothing.
//
//	noteEffect, noteReuse ─▶ candidates ─▶ (after the round) saving ─▶ the offloader
//
// A mark keeps a page from being offered twice; a pool that loses a block clears it. With
// SaveOnCommit first has an entry for each of blocks, in the same order, which says the pool;
// otherwise first is empty, and all pools are looked at.
type saves struct {
	config *StoreConfig // nil: no store
	blocks []protocol.BlockID
	first  []poolBlock // with SaveOnCommit, what was stored first
	marks  [][]saveMark
	room   []bool // of each pool, as the gate has last said
	// forgotten says that the store's actor may have forgotten which blocks it was told.
	forgotten bool
}

// poolBlock names the page of a block in a pool.
type poolBlock struct {
	pool  messages.PoolID
	block protocol.BlockID
}

func newSaves(c *Config) *saves {
	return &saves{config: c.Store, marks: make([][]saveMark, len(c.Pools)), room: make([]bool, len(c.Pools))}
}

// ask asks the gate for which pools there is room.
func (s *saves) ask() {
	if s.config.Gate != nil {
		s.config.Gate.Room(s.room)
		return
	}
	for p := range s.room {
		s.room[p] = true
	}
}

// drop counts pages for which there is no room. Their marks stay saveUnknown, so the next
// occasion offers them again.
func (s *saves) drop(pages int) {
	if pages > 0 {
		s.config.Gate.Dropped(pages)
	}
}

// lose counts pages whose contents have left memory by another way than out of host memory.
// With SaveHostEvict they were not saved; other policies have offered them before.
func (s *saves) lose(pages int) {
	if pages > 0 && s.evicts() && s.config.Gate != nil {
		s.config.Gate.Dropped(pages)
	}
}

// evicts tells whether only what host memory displaces is saved.
func (s *saves) evicts() bool { return s.config != nil && s.config.Policy == SaveHostEvict }

// priority is the lowest of contents that are saved.
func (s *saves) priority() messages.Priority {
	if s.config == nil {
		return 0
	}
	return s.config.MinPriority
}

// on tells whether pages are saved by what happens in the coordinator.
func (s *saves) on() bool { return s.config != nil && s.config.Policy != SaveHostEvict }

// mark is the mark of a page, to be read or changed. Ids of blocks are small numbers that the
// tree gives out again, so an array holds the marks; the mark of a block that a pool has lost
// must be saveUnknown before the id stands for another one.
func (s *saves) mark(p messages.PoolID, b protocol.BlockID) *saveMark {
	for int(b) >= len(s.marks[p]) {
		s.marks[p] = append(s.marks[p], saveUnknown)
	}
	return &s.marks[p][b]
}

// reset forgets everything: after a failure pages may be offered once more, and no one can
// tell what has reached the store's actor.
func (s *saves) reset() {
	s.forgotten = true
	s.blocks, s.first = s.blocks[:0], s.first[:0]
	for p := range s.marks {
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
		if m := s.mark(items[i].Pool, items[i].Block); *m == saveDone {
			*m = saveUnknown
		}
	}
}

// NotSaved tells the coordinator of pages that the store has not got after all: the next
// admission that reuses their blocks offers them again. It may come at any time.
func (c *Coordinator) NotSaved(items []protocol.SaveItem) { c.out.saves.forget(items) }

// noteEffect notes what the tree has changed.
func (s *saves) noteEffect(e *protocol.Effect) {
	if !s.on() {
		return
	}
	offers := e.Kind == protocol.Attach && s.config.Policy == SaveOnCommit
	for _, b := range e.Blocks {
		switch m := s.mark(e.Pool, b); {
		case e.Kind == protocol.Detach || e.Kind == protocol.HostForget:
			// The pool has lost the block. Should contents of that name come back, they are a
			// new page.
			*m = saveUnknown
		case e.Kind == protocol.HostAttach:
			// These contents have just come from the store.
			*m = saveDone
		// Also of contents that come back from host memory, which were stored before. The gate is
		// asked when the tree has said which of the blocks are whole.
		case offers && *m == saveUnknown:
			*m = saveDone
			s.first = append(s.first, poolBlock{e.Pool, b})
			s.blocks = append(s.blocks, b)
		case e.Kind == protocol.Attach && *m == saveAbsent:
			*m = saveUnknown
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
			*s.mark(moves[i].Pool, moves[i].Block) = saveUnknown
		}
	}
}

// noteReuse notes blocks that an admission reuses whole.
func (s *saves) noteReuse(blocks []protocol.BlockID) {
	if !s.on() || s.config.Policy != SaveOnReuse {
		return
	}
	asked, dropped := false, 0
	for _, b := range blocks {
		candidate, unknown := false, 0
		for p := range s.marks {
			if *s.mark(messages.PoolID(p), b) != saveUnknown {
				continue
			}
			// Most blocks that are reused were offered before: then the gate is not asked.
			if !asked {
				s.ask()
				asked = true
			}
			unknown++
			candidate = candidate || s.room[p]
		}
		// One page that was not offered makes the block a candidate; choose looks at each of its
		// pools again.
		if candidate {
			s.blocks = append(s.blocks, b)
		} else {
			dropped += unknown
		}
	}
	s.drop(dropped)
}

// saving asks for the bytes of what the round before has made a candidate. It serves
// no request: it goes before the next one, which could evict the pages.
//
//	begin ─▶ locating ─▶ naming ─▶ ordering ─▶ (the store's actor gets the bytes when they are there)
//
// It is no transaction, since no caller waits for it. A failure drops the candidates: what was
// not saved is missing in the store, and nothing else depends on it.
type saving struct {
	*shared
	stage  string
	locate protocol.Locate
	names  protocol.NameBlocks
	record protocol.SavePages
}

// The stages.
const (
	savingLocating = "locating" // the tree says where the pages are
	savingNaming   = "naming"   // the tree tells the store's actor what the blocks are
	savingOrdering = "ordering" // the offloader orders the copies
)

// due tells whether there are candidates.
func (s *saving) due() bool { return len(s.out.saves.blocks) > 0 }

// begin asks the tree for the places and priorities of the candidates.
func (s *saving) begin() {
	// The details are the lengths and priorities, by which add decides.
	s.locate.Epoch, s.locate.Details = s.kernel.epoch, true
	s.locate.Blocks = append(s.locate.Blocks[:0], s.out.saves.blocks...)
	s.stage, s.kernel.active = savingLocating, s
	s.kernel.toTree(&s.locate)
}

// resume does the stage that follows.
func (s *saving) resume() {
	switch s.stage {
	case savingLocating:
		s.choose()
	case savingNaming:
		s.order()
	case savingOrdering:
		s.out.saves.forget(s.record.Lost)
		s.end()
	}
}

// choose lists the pages that are to be saved, and has their blocks told to the store's
// actor: nothing is asked of the tree about blocks that are never saved.
func (s *saving) choose() {
	all := s.out.saves
	s.record.Epoch, s.record.Stamp, s.record.Items = s.kernel.epoch, s.kernel.stamp, s.record.Items[:0]
	dropped := 0
	if all.config.Policy == SaveOnCommit {
		all.ask()
	}
	for i := range s.locate.Blocks {
		if all.config.Policy == SaveOnCommit {
			dropped += s.addFirst(i)
			continue
		}
		for p := range s.config.Pools {
			s.addReused(p, i)
		}
	}
	all.drop(dropped)
	// Chosen or not, a candidate is looked at once: the round that makes it one again adds it
	// again.
	all.blocks, all.first = all.blocks[:0], all.first[:0]
	if len(s.record.Items) == 0 {
		s.end()
		return
	}
	s.names.Epoch, s.names.All, s.names.Blocks = s.kernel.epoch, all.forgotten, s.names.Blocks[:0]
	for i := range s.record.Items {
		// With SaveOnReuse the pages of one block are next to each other.
		if b := s.record.Items[i].Block; i == 0 || b != s.record.Items[i-1].Block {
			s.names.Blocks = append(s.names.Blocks, b)
		}
	}
	s.stage = savingNaming
	s.kernel.toTree(&s.names)
}

// order asks the offloader for the bytes. The store's actor has been told of the blocks.
func (s *saving) order() {
	s.out.saves.forgotten = false
	// The copies read device pages, so who writes to those next has to ask what they wait for.
	s.out.move.ordered = true
	s.stage = savingOrdering
	s.kernel.toOffloader(&s.record)
}

// addFirst adds the page of the i-th candidate, which was stored first, in its pool. It
// returns 1 if the page is dropped because there is no room.
func (s *saving) addFirst(i int) (dropped int) {
	all, first := s.out.saves, s.out.saves.first[i]
	switch {
	case !s.worth(int(first.pool), i):
	case all.room[first.pool]:
		s.add(int(first.pool), i)
	default:
		*all.mark(first.pool, first.block) = saveUnknown
		return 1
	}
	return 0
}

// addReused adds the page of the i-th candidate in a pool unless it was offered before. A page
// that is not worth saving keeps saveUnknown: its priority may have risen when the block is
// reused the next time.
func (s *saving) addReused(p, i int) {
	m := s.out.saves.mark(messages.PoolID(p), s.locate.Blocks[i])
	switch {
	case *m != saveUnknown:
	case s.locate.Pages[p][i] == protocol.Nowhere:
		*m = saveAbsent
	case s.worth(p, i):
		*m = saveDone
		s.add(p, i)
	}
}

// worth tells whether the page of the i-th candidate in a pool is one to be saved: of a whole
// block, with the priority.
func (s *saving) worth(p, i int) bool {
	// A block of an encoder's input is whole, however many of its tokens are padding.
	whole := s.cross.has(p) || s.locate.Tokens[i] == s.config.TokensPerBlock
	return s.locate.Pages[p][i] != protocol.Nowhere && whole && s.locate.Priorities[i] >= s.out.saves.config.MinPriority
}

// add adds the page of the i-th candidate in a pool to those that are to be saved.
func (s *saving) add(p, i int) {
	item := protocol.SaveItem{Pool: messages.PoolID(p), Block: s.locate.Blocks[i], From: s.locate.Pages[p][i]}
	s.record.Items = append(s.record.Items, item)
}

func (s *saving) end() { s.stage, s.kernel.active = "", nil }

// String names the stage.
func (s *saving) String() string { return fmt.Sprintf("saving: %v", s.stage) }

// flush serves Flush, whose answer is that of the store's actor: everything that was
// to be saved has been ordered before, since saving goes before the next request. Only the
// sequence is looked for here, because the store's actor knows none.
type flush struct{ *shared }

func (t *flush) start(request any) {
	r := request.(*protocol.Flush)
	r.Err, r.Saved = nil, 0
	if r.Sequence != 0 {
		if _, refusal := t.sequences.Find(r.Sequence); refusal != nil {
			r.Err = refusal
			t.kernel.reply()
			return
		}
	}
	t.kernel.deliver(Port.Store)
}
