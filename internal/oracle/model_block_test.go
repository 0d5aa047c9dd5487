package oracle

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// symbol is a token as it is compared: its id and, where an item covers it, the
// item's hash and the position in it.
type symbol struct {
	id    messages.Token
	cover messages.Cover
}

// block is a stored block: all tokens from the start to its end, and where each
// pool has it. It is in tree.blocks as long as some pool has it.
type block struct {
	namespace messages.Namespace
	key       []symbol
	index     int // in its prefix
	at        []*spot

	priority messages.Priority
	timed    bool
	expires  time.Duration
	started  uint64 // counts timers
	session  string // that it belongs to; empty: none
	touched  uint64 // last stored or claimed
}

// spot is where one pool has one block: on a device page, on a host page, or on
// both, and then the host page is a clean copy. A block that a pool forgets and
// stores again has a new spot.
type spot struct {
	device, host *page
	pins         int
	useless      bool // no match could use the page when the model looked last
	use          use
	ended        uint64 // when the use was left: counts all ends
	age          uint64 // of the clean copy: the request that made it
	born         uint64 // of the clean copy: counts all copies
}

// use is a moment at which a reference ended: the request, and in a request the
// place of the sequence.
type use struct {
	request uint64
	place   int
}

// before reports whether one use is earlier than another.
func (u use) before(v use) bool {
	return u.request < v.request || u.request == v.request && u.place < v.place
}

// clock is the time of the model. Time passes only between requests; within a request
// its counters tell what came first.
type clock struct {
	now     time.Duration
	request uint64 // counts requests, for uses and the ages of clean copies
	touches uint64 // counts stores and claims, for ties between sources
	timers  uint64 // counts timers started
	ends    uint64 // counts references that ended, for ties between victims
	copies  uint64 // counts clean copies, for ties between them
}

// symbols reads a prompt with its items.
func symbols(tokens []messages.Token, items []messages.MultimodalItem) []symbol {
	key := make([]symbol, len(tokens))
	for i, t := range tokens {
		key[i].id = t
		for _, item := range items {
			if item.Start <= i && i < item.Start+item.Length {
				key[i].cover = messages.Cover{Covered: true, Hash: item.Hash, Position: i - item.Start}
			}
		}
	}
	return key
}

// shared is the number of leading symbols that two prefixes have in common.
func shared(a, b []symbol) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// tier is the best tier of the spot.
func (s *spot) tier() messages.Tier {
	if s.device != nil {
		return messages.Primary
	}
	return messages.Secondary
}

// held reports whether each of some pools has a page of the block, in either tier.
func held(b *block, pools []*pool) bool {
	return b != nil && !slices.ContainsFunc(pools, func(p *pool) bool { return b.at[p.id] == nil })
}

// name is a block's key as a map key.
func name(ns messages.Namespace, key []symbol) string { return fmt.Sprintf("%v %v", ns, key) }

// mergeSession ends the belonging of a block to a session when a sequence of another
// session, or of none, reuses or stores it.
func mergeSession(b *block, session string) {
	if b.session != session {
		b.session = ""
	}
}
