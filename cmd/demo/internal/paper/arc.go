package paper

// The queues of ARC: blocks used once and blocks used more often, and the histories of
// blocks evicted from them.
const (
	once queue = iota
	often
	onceEvicted
	oftenEvicted
)

// arc keeps |once| + |often| ≤ capacity, |once| + |onceEvicted| ≤ capacity, and no more than
// twice the capacity in all four queues.
type arc struct {
	queues
	capacity int
	// target is how long once should be. A use of a block in the history of once says that
	// once was too short, one in that of often that it was too long.
	target int
}

func newARC(capacity int, trace Trace) Cache {
	return &arc{queues: newQueues(4, trace.blocks()), capacity: capacity}
}

// Has tells whether a block is cached.
func (a *arc) Has(b int32) bool { return a.in[b] == once || a.in[b] == often }

// Use stores a prompt, the deepest block first, so that it is the first to be evicted. While
// once is over its target, the blocks of a long new prompt evict each other.
func (a *arc) Use(_ int, blocks []int32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		a.use(blocks[k])
	}
}

func (a *arc) use(b int32) {
	to := often
	switch a.in[b] {
	case onceEvicted:
		a.target = min(a.capacity, a.target+max(1, a.size[oftenEvicted]/a.size[onceEvicted]))
		a.replace(once)
	case oftenEvicted:
		a.target = max(0, a.target-max(1, a.size[onceEvicted]/a.size[oftenEvicted]))
		a.replace(often)
	case nowhere:
		to = once
		a.replace(once)
	}
	a.push(to, b)
	a.forget()
}

// replace evicts a block into a history if the cache is full. origin is the queue that the
// block to be stored was evicted from; it decides when once is just as long as its target.
func (a *arc) replace(origin queue) {
	if a.size[once]+a.size[often] < a.capacity {
		return
	}
	from := often
	if a.size[once] > a.target || a.size[once] == a.target && origin == often || a.size[often] == 0 {
		from = once
	}
	if a.size[from] == 0 {
		from = often
	}
	a.push(from+onceEvicted, a.front[from])
}

// forget bounds the histories. That of once goes first: the paper keeps both lists of once
// together within the capacity.
func (a *arc) forget() {
	for a.size[onceEvicted] > 0 && a.size[once]+a.size[onceEvicted] > a.capacity {
		a.remove(a.front[onceEvicted])
	}
	for a.size[oftenEvicted] > 0 && a.size[once]+a.size[often]+a.size[onceEvicted]+a.size[oftenEvicted] > 2*a.capacity {
		a.remove(a.front[oftenEvicted])
	}
}
