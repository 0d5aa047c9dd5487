package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attributes are what the tree remembers of each block beside its place: when it was
// last used, its priority and when that ends, its session. Only a block that some pool
// holds has attributes: a ghost has stamp, priority and session 0, 0 and none.
type attributes struct {
	blocks blocks
	// blocksHeld is the number of blocks of which held is true, between messages. A
	// store counts a block when it gets its attributes, before its first page.
	blocksHeld int // blocks that some pool holds
	// A stamp that is given is never 0, since 0 means that a block does not count.
	// Only blocks of one claim or one store share a stamp.
	stamp    uint32 // of the last claim or store
	sessions sessions
	timers   timers
}

// blocks are attributes by BlockID, each in an array of its own, since most loops need
// one attribute. stamp and priority have one length, at least that of index.node.
type blocks struct {
	stamp []uint32 // when it was last stored or claimed
	// While timers.ended is true of a block this is the priority before the end: see
	// expireNow.
	priority []messages.Priority
	session  []int32 // as far as one was ever of a session; none: of no session
}

// reserve makes room for n blocks. Config.Blocks is a hint: the arrays grow beyond
// it.
func (s *blocks) reserve(n int) {
	s.stamp, s.priority = make([]uint32, 0, n), make([]messages.Priority, 0, n)
}

// cover makes sure that the blocks with ids less than n have attributes.
func (s *blocks) cover(n int) {
	if more := n - len(s.stamp); more > 0 {
		s.stamp, s.priority = lengthen(s.stamp, more), lengthen(s.priority, more)
	}
}

// sessionOf returns the number of the session that b belongs to, or none.
func (s *blocks) sessionOf(b protocol.BlockID) int32 {
	if int(b) >= len(s.session) {
		return none
	}
	return s.session[b]
}

// setSession makes b a block of session n, or of none. The array is as long as the
// largest id that was ever of a session, so an engine without sessions pays nothing
// for it.
func (s *blocks) setSession(b protocol.BlockID, n int32) {
	if n == none && int(b) >= len(s.session) {
		return
	}
	for int(b) >= len(s.session) {
		s.session = append(s.session, none)
	}
	s.session[b] = n
}

// expireAttributes removes the attributes of blocks whose last pages have gone. Without
// it an id's next block would begin with the attributes of the one before.
func (t *attributes) expireAttributes(ids ...protocol.BlockID) {
	t.blocksHeld -= len(ids)
	if t.timers.none() && t.sessions.none() {
		stamps := t.blocks.stamp
		priorities := t.blocks.priority[:len(stamps)]
		for _, b := range ids {
			stamps[b], priorities[b] = 0, 0
		}
		return
	}
	for _, b := range ids {
		t.timers.stop(b)
		if s := t.blocks.sessionOf(b); s != none {
			t.sessions.remove(s)
			t.blocks.setSession(b, none)
		}
		t.blocks.stamp[b], t.blocks.priority[b] = 0, 0
	}
}

// expireNow notes the default priority of a block whose priority has ended. It is
// called wherever the priority is read: see timers.
func (t *attributes) expireNow(b protocol.BlockID) {
	if t.timers.ended(b) {
		t.timers.stop(b)
		t.blocks.priority[b] = messages.DefaultPriority
	}
}

// shareSession applies the rule of sessions to a block that a sequence of the named
// session, or of none, reuses whole or stores too: if that is another session the
// block belongs to none from now on. A block of two sessions would be lost to the
// second when the first is forgotten, so it belongs to neither and is forgotten by
// prefix, salt or eviction only.
func (t *attributes) shareSession(b protocol.BlockID, session string) {
	s := t.blocks.sessionOf(b)
	if s != none && t.sessions.names[s] != session {
		t.sessions.remove(s)
		t.blocks.setSession(b, none)
	}
}
