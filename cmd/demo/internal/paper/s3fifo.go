package paper

// The queues of S3-FIFO. The ghost queue remembers as many evicted blocks as fit into the
// cache.
const (
	small queue = iota
	main
	ghost
)

const (
	// smallPercent is the share of the cache over which the small queue gives blocks up
	// first, as in the paper.
	smallPercent = 10
	// maxRepeats is where the count of uses since a block was stored saturates.
	maxRepeats = 3
)

// s3fifo keeps |small| + |main| ≤ capacity and |ghost| ≤ capacity. Nothing of the running
// request is evicted for it: what comes up for eviction goes to the end of main instead.
type s3fifo struct {
	queues
	capacity int
	uses     []uint8 // by block: since it was stored
	running  []int   // by block: one more than the last request that used it
	own      int     // blocks of the running request in main
}

func newS3FIFO(capacity int, trace Trace) Cache {
	n := trace.blocks()
	return &s3fifo{queues: newQueues(3, n), capacity: capacity, uses: make([]uint8, n), running: make([]int, n)}
}

// Has tells whether a block is cached.
func (s *s3fifo) Has(b int32) bool { return s.in[b] == small || s.in[b] == main }

// Use stores a prompt, the deepest block first, so that it is the first to be evicted.
// What does not fit into an empty cache is left out.
func (s *s3fifo) Use(i int, blocks []int32) {
	blocks = blocks[:min(len(blocks), s.capacity)]
	s.own = 0
	for _, b := range blocks {
		if s.in[b] == main && s.running[b] != i+1 {
			s.own++
		}
		s.running[b] = i + 1
	}
	for k := len(blocks) - 1; k >= 0; k-- {
		b := blocks[k]
		if s.Has(b) {
			s.uses[b] = min(s.uses[b]+1, maxRepeats)
			continue
		}
		for s.size[small]+s.size[main] >= s.capacity {
			s.evict(i + 1)
		}
		to := small
		if s.in[b] == ghost {
			to = main
			s.own++
		}
		s.push(to, b)
		s.uses[b] = 0
	}
}

// evict looks at the oldest block of the queue whose turn it is until one block is evicted. Where all of main is of the running
// request, it is the turn of small.
func (s *s3fifo) evict(running int) {
	for {
		from := main
		if s.size[small]*100 >= s.capacity*smallPercent || s.size[main] == s.own {
			from = small
		}
		b := s.front[from]
		switch {
		case s.running[b] == running:
			if from == small {
				s.own++
			}
			s.push(main, b)
		case s.uses[b] > 0:
			s.push(main, b)
			if s.uses[b]--; from == small {
				s.uses[b] = 0
			}
		case from == small:
			s.push(ghost, b)
			if s.size[ghost] > s.capacity {
				s.remove(s.front[ghost])
			}
			return
		default:
			s.remove(b)
			return
		}
	}
}
