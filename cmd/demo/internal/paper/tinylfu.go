package paper

// The queues of W-TinyLFU. The main part is a segmented LRU: blocks come in by probation
// and are protected from their next use on.
const (
	window queue = iota
	probation
	protected
)

const (
	// maxUses is where counts of uses saturate, as they do in four bits.
	maxUses = 15
	// agingUses is how many uses, for each block that fits, halve all counts.
	agingUses = 10
	// windowPercent and protectedPercent are the shares that the paper found best for most
	// traces: of the cache, and of what is not the window.
	windowPercent, protectedPercent = 1, 80
)

// tinyLFU keeps |window| + |probation| + |protected| ≤ capacity. Its counts of uses are exact,
// one for each block of the trace, where the paper estimates them by a sketch; a sketch
// bounds the memory and gives the policy no further information.
type tinyLFU struct {
	queues
	windowLimit, mainLimit, protectedLimit int
	uses                                   []uint8 // by block
	untilAging                             int     // uses until all counts are halved
	agingPeriod                            int
}

func newTinyLFU(capacity int, trace Trace) Cache {
	blocks := trace.blocks()
	t := &tinyLFU{queues: newQueues(3, blocks), uses: make([]uint8, blocks)}
	t.windowLimit = max(1, capacity*windowPercent/100)
	t.mainLimit = capacity - t.windowLimit
	t.protectedLimit = t.mainLimit * protectedPercent / 100
	t.agingPeriod = agingUses * capacity
	t.untilAging = t.agingPeriod
	return t
}

// Has tells whether a block is cached.
func (t *tinyLFU) Has(b int32) bool { return t.in[b] != nowhere }

// Use counts and stores a prompt, the deepest block first, so that it is the first to be
// evicted. Blocks that are not admitted are not cached when Use returns, even if they are of
// this prompt: to admit everything would be another policy.
func (t *tinyLFU) Use(_ int, blocks []int32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		t.count(blocks[k])
		t.use(blocks[k])
	}
}

func (t *tinyLFU) count(b int32) {
	t.uses[b] = min(t.uses[b]+1, maxUses)
	if t.untilAging--; t.untilAging > 0 {
		return
	}
	t.untilAging = t.agingPeriod
	for b := range t.uses {
		t.uses[b] /= 2
	}
}

func (t *tinyLFU) use(b int32) {
	switch t.in[b] {
	case window, protected:
		t.push(t.in[b], b)
	case probation:
		t.push(protected, b)
		if t.size[protected] > t.protectedLimit {
			t.push(probation, t.front[protected])
		}
	default:
		t.push(window, b)
		if t.size[window] > t.windowLimit {
			t.admit(t.front[window])
		}
	}
}

// admit moves a block from the window to the main part if there is room, or if it is used
// more often than the main part's next victim. Of equal ones the victim stays, so that a
// scan replaces nothing.
func (t *tinyLFU) admit(b int32) {
	if t.size[probation]+t.size[protected] < t.mainLimit {
		t.push(probation, b)
		return
	}
	victim := t.front[probation]
	if victim == nil32 {
		victim = t.front[protected]
	}
	if victim == nil32 || t.uses[b] <= t.uses[victim] {
		t.remove(b)
		return
	}
	t.remove(victim)
	t.push(probation, b)
}
