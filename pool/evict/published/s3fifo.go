package published

import "github.com/kvactor/kvactor/pool/evict"

// The parts of s3FIFO.
const (
	smallQueue uint8 = iota
	mainQueue
)

const (
	// smallShare is one over the part of the pages beyond which small gives up blocks first, as
	// in the paper.
	smallShare = 10
	// maxRepeats is where the count of uses since a block came saturates.
	maxRepeats = 3
)

// s3FIFO has two queues in the order of coming. New blocks pass a small one. Those that are
// used again there, or are asked for again soon after, reach the main one (Yang et al., "FIFO
// queues are all you need for cache eviction", SOSP 2023).
type s3FIFO struct {
	perBlock
	evicted history // from small
}

func newS3FIFO(c *evict.Core, o evict.Options) evict.Policy {
	s := &s3FIFO{}
	s.setup(c, o, s)
	return s
}

// use counts. Only new contents get a place.
func (s *s3FIFO) use(p int32, fresh bool) {
	r := &s.pages[p]
	if !fresh {
		r.uses = min(r.uses+1, maxRepeats)
		return
	}
	r.part, r.rank = smallQueue, s.next()
	if s.evicted.remove(r.identity) {
		r.part = mainQueue
	}
}

// leave remembers contents that have not reached main.
func (s *s3FIFO) leave(p int32) {
	if r := &s.pages[p]; r.part == smallQueue {
		s.evicted.add(r.identity, s.capacity)
	}
}

// first looks at the oldest page of the part whose turn it is until one was not used. Pages that
// are being filled count for small.
func (s *s3FIFO) first(q *blockQueue) int32 {
	for {
		from, filling := mainQueue, s.core.Filling()
		n := len(q.heaps[smallQueue]) + filling
		if n*smallShare >= q.size()+filling || len(q.heaps[mainQueue]) == 0 {
			from = smallQueue
		}
		if len(q.heaps[from]) == 0 {
			from = mainQueue
		}
		p := q.top(from)
		r := &s.pages[p]
		if r.uses == 0 {
			return p
		}
		if r.uses--; from == smallQueue {
			r.uses = 0
		}
		s.shift(p, mainQueue, s.next())
	}
}
