package published

import (
	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// perBlock is what all policies share that give each block a rank of its own: the records, and
// the path of a request turned into uses of single blocks, the deepest first. The rule of a
// policy says what a use changes and which page of a queue goes first.
//
// A new prompt takes its pages before its blocks are counted, so its victims are chosen without
// it. A policy that limits how many new blocks there are counts these pages by Core.Filling.
type perBlock struct {
	core     *evict.Core
	rule     rule
	span     evict.Span
	capacity int         // pages
	pages    []ranked    // by page
	links    evict.Links // of the blocks of paths
	waiting  [parts]int  // pages in queues, by part
	last     float64     // the latest rank by order of use, see next
}

var (
	_ evict.Tiered    = (*perBlock)(nil)
	_ evict.Inspected = (*perBlock)(nil)
	_ evict.Checked   = (*blockQueue)(nil)
)

// rule is the part of a policy that others do not share.
type rule interface {
	// use counts a use of contents, and gives them a part and a rank. Contents that have just
	// come are fresh. The page is in no queue.
	use(p int32, fresh bool)
	// leave tells that contents go, while their record is still there.
	leave(p int32)
	// added tells that a page has come to a queue, so that others may have to change parts.
	added(q *blockQueue)
	// linked tells that a page has another number of blocks behind it.
	linked(p int32)
	// first is the page of a queue, which has some, that is evicted next.
	first(q *blockQueue) int32
}

// parts is how many heaps a queue has. What they are for is up to the rule.
const parts = 3

// ranked is what is known of the contents of a page. The zero value: nothing.
type ranked struct {
	identity uint64  // a hash of the prefix; 0: not known
	rank     float64 // within the part; the least goes first
	uses     int32   // as the rule counts them
	part     uint8   // of the queue
	known    bool
	queue    *blockQueue // nil: the page may not be evicted
}

// setup must be called before the policy is used.
func (b *perBlock) setup(c *evict.Core, o evict.Options, r rule) {
	b.core, b.rule, b.span = c, r, max(1, o.Span)
}

// leave, added and linked do nothing, for rules that need none of them.
func (b *perBlock) leave(int32)       {}
func (b *perBlock) added(*blockQueue) {}
func (b *perBlock) linked(int32)      {}

// NewQueue makes a queue.
func (b *perBlock) NewQueue() evict.Queue { return &blockQueue{policy: b} }

// next is a rank above all others that next has given.
func (b *perBlock) next() float64 {
	b.last++
	return b.last
}

// Used counts a use of each block of a path, the deepest first. Without facts the identities of
// the blocks remain unknown.
func (b *perBlock) Used(pages []messages.PageID, facts *evict.Request) {
	for k := len(pages) - 1; k >= 0; k-- {
		if !b.core.Holds(pages[k]) {
			continue
		}
		p := int32(pages[k])
		if k > 0 && b.core.Holds(pages[k-1]) {
			b.link(p, int32(pages[k-1]))
		}
		if facts != nil {
			b.pages[p].identity = b.identity(facts, int(b.core.Page(p).Depth))
		}
		b.noteUse(p)
	}
}

// identity names the prefix that ends with a full block, 0 if the block is not full. Where a
// signature stands for several blocks, their prefixes are told apart by the signature before
// them and by their depth.
func (b *perBlock) identity(facts *evict.Request, depth int) uint64 {
	n := min(b.span.Signatures(depth+1), len(facts.Signatures))
	if n == 0 || depth >= facts.Blocks {
		return 0
	}
	return max(1, facts.Signatures[n-1]^uint64(depth)*0x9e3779b97f4a7c15)
}

// noteUse counts a use of one block.
func (b *perBlock) noteUse(p int32) {
	r := &b.pages[p]
	fresh := !r.known
	r.known = true
	b.rule.use(p, fresh)
}

// Note counts the first use of contents that another Core has evicted.
func (b *perBlock) Note(p int32, known *evict.Known) {
	if known != nil {
		b.pages[p].identity = known.Identity
	}
	b.noteUse(p)
}

// Noted is the identity of contents.
func (b *perBlock) Noted(p int32) (known evict.Known, ok bool) {
	id := b.pages[p].identity
	return evict.Known{Identity: id}, id != 0
}

// link notes which page has the block before another one.
func (b *perBlock) link(p, front int32) {
	if b.links[p].Front == evict.None && b.core.Page(front).Depth+1 == b.core.Page(p).Depth {
		b.links.Put(p, front)
		b.rule.linked(front)
	}
}

// Forget forgets contents.
func (b *perBlock) Forget(p int32) {
	r := &b.pages[p]
	if r.known {
		b.rule.leave(p)
	}
	if front := b.links[p].Front; front != evict.None {
		b.links.Cut(p)
		b.rule.linked(front)
	}
	for len(b.links[p].Behind) > 0 {
		b.links.Cut(b.links[p].Behind[0])
	}
	*r = ranked{}
}

// Move gives the record of a page to another.
func (b *perBlock) Move(from, to int32) {
	b.pages[to], b.pages[from] = b.pages[from], ranked{}
	b.links.Move(from, to)
}

// Resize changes the number of pages.
func (b *perBlock) Resize(pages int) {
	b.pages = append(make([]ranked, 0, pages), b.pages[:min(len(b.pages), pages)]...)[:pages]
	b.links.Resize(pages)
	b.capacity = pages
}

// shift gives a page another part, in its queue too.
func (b *perBlock) shift(p int32, part uint8, rank float64) {
	r := &b.pages[p]
	q := r.queue
	if q != nil {
		q.take(p)
	}
	r.part, r.rank = part, rank
	if q != nil {
		q.put(p)
	}
}

// blockQueue is the pages of a queue in up to three heaps.
type blockQueue struct {
	policy *perBlock
	heaps  [parts][]int32
}

// size is the number of pages.
func (q *blockQueue) size() (n int) {
	for i := range q.heaps {
		n += len(q.heaps[i])
	}
	return n
}

// Add adds a page. One of which no use was told, as after a failure, is used now.
func (q *blockQueue) Add(p int32) {
	if !q.policy.pages[p].known {
		q.policy.noteUse(p)
	}
	q.put(p)
	q.policy.rule.added(q)
}

// Remove removes a page.
func (q *blockQueue) Remove(p int32) { q.take(p) }

// put adds a page to its heap.
func (q *blockQueue) put(p int32) {
	r := &q.policy.pages[p]
	r.queue = q
	q.policy.waiting[r.part]++
	heap.Push(&q.heaps[r.part], q, p)
}

// take undoes put.
func (q *blockQueue) take(p int32) {
	r := &q.policy.pages[p]
	r.queue = nil
	q.policy.waiting[r.part]--
	heap.Remove(&q.heaps[r.part], q, int(q.policy.core.Page(p).At))
}

// top is the first page of a part, evict.None if it has none.
func (q *blockQueue) top(part uint8) int32 {
	if len(q.heaps[part]) == 0 {
		return evict.None
	}
	return q.heaps[part][0]
}

// First is the page that goes first by the rule.
func (q *blockQueue) First() int32 { return q.policy.rule.first(q) }

// Before compares ranks, and where they are equal depths.
func (q *blockQueue) Before(a, b int32) bool {
	x, y := &q.policy.pages[a], &q.policy.pages[b]
	if x.rank != y.rank {
		return x.rank < y.rank
	}
	deep, deeper := q.policy.core.Page(b).Depth, q.policy.core.Page(a).Depth
	return deeper > deep || deeper == deep && a < b
}

// Moved notes the index of a page in its heap.
func (q *blockQueue) Moved(p int32, i int) { q.policy.core.Page(p).At = int32(i) }

// Peek appends the first n pages part by part. It must change no later choice, so it does not
// ask the rule.
func (q *blockQueue) Peek(n int, list []int32) []int32 {
	end := len(list) + n
	for i := range q.heaps {
		from := len(list)
		for len(list) < end && len(q.heaps[i]) > 0 {
			list = append(list, heap.Pop(&q.heaps[i], q))
		}
		for _, p := range list[from:] {
			heap.Push(&q.heaps[i], q, p)
		}
	}
	return list
}
