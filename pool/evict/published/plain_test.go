package published

import (
	"cmp"
	"maps"
	"slices"
)

// testBlockTokens is how many tokens a block of the tests has.
const testBlockTokens = 512

// plain is a policy as its paper has it: lists of blocks, searched in full.
type plain interface {
	has(block int32) bool
	// use stores the blocks of a prompt and evicts others.
	use(i int, blocks []int32)
}

// without is a list without a block.
func without(list []int32, b int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(x int32) bool { return x == b })
}

// plainARC is ARC in the words of its paper: t1, t2, b1, b2 and p.
type plainARC struct {
	capacity, p    int
	t1, t2, b1, b2 []int32
}

func (c *plainARC) has(b int32) bool {
	return slices.Contains(c.t1, b) || slices.Contains(c.t2, b)
}

func (c *plainARC) use(_ int, blocks []int32) {
	for _, x := range slices.Backward(blocks) {
		switch {
		case c.has(x):
			c.t1, c.t2 = without(c.t1, x), append(without(c.t2, x), x)
		case slices.Contains(c.b1, x):
			c.p = min(c.capacity, c.p+max(1, len(c.b2)/len(c.b1)))
			c.replace(false)
			c.b1, c.t2 = without(c.b1, x), append(c.t2, x)
		case slices.Contains(c.b2, x):
			c.p = max(0, c.p-max(1, len(c.b1)/len(c.b2)))
			c.replace(true)
			c.b2, c.t2 = without(c.b2, x), append(c.t2, x)
		default:
			c.miss(x)
		}
	}
}

// miss is case IV of the paper.
func (c *plainARC) miss(x int32) {
	if len(c.t1)+len(c.b1) == c.capacity {
		if len(c.t1) < c.capacity {
			c.b1 = c.b1[1:]
			c.replace(false)
		} else {
			c.t1 = c.t1[1:]
		}
	} else if total := len(c.t1) + len(c.t2) + len(c.b1) + len(c.b2); total >= c.capacity {
		if total == 2*c.capacity {
			c.b2 = c.b2[1:]
		}
		c.replace(false)
	}
	c.t1 = append(c.t1, x)
}

// replace is called with a full cache only.
func (c *plainARC) replace(fromB2 bool) {
	if len(c.t1)+len(c.t2) < c.capacity {
		return
	}
	if n := len(c.t1); n > 0 && (n > c.p || fromB2 && n == c.p || len(c.t2) == 0) {
		c.b1, c.t1 = append(c.b1, c.t1[0]), c.t1[1:]
		return
	}
	c.b2, c.t2 = append(c.b2, c.t2[0]), c.t2[1:]
}

// plainTinyLFU counts uses in a map and halves them all at once.
type plainTinyLFU struct {
	capacity, counted            int
	windowLimit, protectedLimit  int
	window, probation, protected []int32
	uses                         map[int32]int
}

func newPlainTinyLFU(capacity int) plain {
	w := max(1, capacity/100)
	return &plainTinyLFU{
		capacity: capacity, windowLimit: w, protectedLimit: (capacity - w) * 8 / 10,
		uses: map[int32]int{},
	}
}

func (c *plainTinyLFU) has(b int32) bool {
	return slices.Contains(slices.Concat(c.window, c.probation, c.protected), b)
}

func (c *plainTinyLFU) use(_ int, blocks []int32) {
	for _, b := range slices.Backward(blocks) {
		c.uses[b] = min(15, c.uses[b]+1)
		if c.counted++; c.counted%(10*c.capacity) == 0 {
			for x := range c.uses {
				c.uses[x] /= 2
			}
		}
		c.one(b)
	}
}

func (c *plainTinyLFU) one(b int32) {
	switch {
	case slices.Contains(c.window, b):
		c.window = append(without(c.window, b), b)
	case slices.Contains(c.protected, b):
		c.protected = append(without(c.protected, b), b)
	case slices.Contains(c.probation, b):
		c.probation, c.protected = without(c.probation, b), append(c.protected, b)
		if len(c.protected) > c.protectedLimit {
			c.probation, c.protected = append(c.probation, c.protected[0]), c.protected[1:]
		}
	default:
		c.window = append(c.window, b)
		if len(c.window) <= c.windowLimit {
			return
		}
		candidate := c.window[0]
		c.window = c.window[1:]
		if main := slices.Concat(c.probation, c.protected); len(main) == c.capacity-c.windowLimit {
			if len(main) == 0 || c.uses[candidate] <= c.uses[main[0]] {
				return
			}
			c.probation, c.protected = without(c.probation, main[0]), without(c.protected, main[0])
		}
		c.probation = append(c.probation, candidate)
	}
}

// plainS3FIFO has its queues as lists.
type plainS3FIFO struct {
	capacity           int
	small, main, ghost []int32
	uses               map[int32]int
}

func (c *plainS3FIFO) has(b int32) bool {
	return slices.Contains(c.small, b) || slices.Contains(c.main, b)
}

func (c *plainS3FIFO) use(_ int, blocks []int32) {
	for _, b := range slices.Backward(blocks) {
		if c.has(b) {
			c.uses[b] = min(3, c.uses[b]+1)
			continue
		}
		for len(c.small)+len(c.main) == c.capacity {
			c.step()
		}
		if slices.Contains(c.ghost, b) {
			c.ghost, c.main = without(c.ghost, b), append(c.main, b)
		} else {
			c.small = append(c.small, b)
		}
		c.uses[b] = 0
	}
}

// step takes one block out of its queue. It stays cached if it was used.
func (c *plainS3FIFO) step() {
	if 10*len(c.small) >= c.capacity || len(c.main) == 0 {
		b := c.small[0]
		c.small = c.small[1:]
		if c.uses[b] > 0 {
			c.main, c.uses[b] = append(c.main, b), 0
			return
		}
		c.ghost = append(c.ghost, b)
		c.ghost = c.ghost[max(0, len(c.ghost)-c.capacity):]
		return
	}
	b := c.main[0]
	c.main = c.main[1:]
	if c.uses[b] > 0 {
		c.main, c.uses[b] = append(c.main, b), c.uses[b]-1
	}
}

// plainGDSF looks through all cached blocks for leaves.
type plainGDSF struct {
	capacity int
	slope    float64
	age      float64
	weight   map[int32]float64
	uses     map[int32]int
	depth    map[int32]int
	parent   map[int32]int32
}

func newPlainGDSF(capacity int) plain {
	return &plainGDSF{
		capacity: capacity, slope: float64(testBlockTokens) / 30518,
		weight: map[int32]float64{}, uses: map[int32]int{},
		depth: map[int32]int{}, parent: map[int32]int32{},
	}
}

func (c *plainGDSF) has(b int32) bool { return c.uses[b] > 0 }

func (c *plainGDSF) use(_ int, blocks []int32) {
	for k, b := range blocks {
		c.uses[b]++
		c.depth[b] = k
		c.weight[b] = c.age + float64(c.uses[b])*(1+c.slope*float64(k))
		c.parent[b] = -1
		if k > 0 {
			c.parent[b] = blocks[k-1]
		}
	}
	for len(c.uses) > c.capacity {
		leaves := slices.DeleteFunc(slices.Collect(maps.Keys(c.uses)), func(b int32) bool {
			for x := range c.uses {
				if c.parent[x] == b {
					return true
				}
			}
			return false
		})
		victim := slices.MinFunc(leaves, func(a, b int32) int {
			return cmp.Or(
				cmp.Compare(c.weight[a], c.weight[b]),
				cmp.Compare(c.depth[b], c.depth[a]), cmp.Compare(a, b),
			)
		})
		c.age = c.weight[victim]
		delete(c.uses, victim)
	}
}

// plainSuperseded keeps, for each block, when it was used last, less a million if a later
// prompt has left the run that it is in.
type plainSuperseded struct {
	capacity    int
	order       map[int32]int
	depth, last map[int32]int
	parent      map[int32]int32
}

func newPlainSuperseded(capacity int) plain {
	return &plainSuperseded{
		capacity: capacity, order: map[int32]int{}, depth: map[int32]int{},
		last: map[int32]int{}, parent: map[int32]int32{},
	}
}

func (c *plainSuperseded) has(b int32) bool { _, ok := c.order[b]; return ok }

// behind are the cached blocks directly behind one, but for x.
func (c *plainSuperseded) behind(b, x int32) (list []int32) {
	for y := range c.order {
		if c.parent[y] == b && y != x {
			list = append(list, y)
		}
	}
	return list
}

func (c *plainSuperseded) use(i int, blocks []int32) {
	for k, b := range blocks {
		known := c.has(b)
		c.order[b], c.depth[b], c.last[b], c.parent[b] = i+1, k, i, -1
		if k == 0 {
			continue
		}
		c.parent[b] = blocks[k-1]
		if tail := c.behind(blocks[k-1], b); !known && len(tail) == 1 {
			for len(tail) == 1 {
				c.order[tail[0]] = c.last[tail[0]] - 1e6
				tail = c.behind(tail[0], -1)
			}
		}
	}
	for len(c.order) > c.capacity {
		victim := slices.MinFunc(slices.Collect(maps.Keys(c.order)), func(a, b int32) int {
			return cmp.Or(
				cmp.Compare(c.order[a], c.order[b]),
				cmp.Compare(c.depth[b], c.depth[a]), cmp.Compare(a, b),
			)
		})
		delete(c.order, victim)
		for b, parent := range c.parent {
			if parent == victim {
				c.parent[b] = -1 // until a prompt uses both again
			}
		}
	}
}
