package paper

// queue is one of the lists of a policy.
type queue int32

// nowhere is the queue of blocks that are in none.
const nowhere queue = -1

// nil32 ends a list.
const nil32 = -1

// queues are doubly linked lists of blocks, each block in one of them at most. The links
// are in arrays by block, so that nothing is allocated for a block.
type queues struct {
	in         []queue // by block
	next, last []int32 // by block: its neighbours, towards the back and the front
	front      []int32 // by queue: the least recent block
	back       []int32 // by queue: the most recent one
	size       []int   // by queue
}

func newQueues(n, blocks int) queues {
	q := queues{
		in: make([]queue, blocks), next: make([]int32, blocks), last: make([]int32, blocks),
		front: make([]int32, n), back: make([]int32, n), size: make([]int, n),
	}
	for b := range q.in {
		q.in[b] = nowhere
	}
	for i := range n {
		q.front[i], q.back[i] = nil32, nil32
	}
	return q
}

// push moves a block to the back of a queue, from wherever it is.
func (q *queues) push(to queue, b int32) {
	q.remove(b)
	q.in[b], q.next[b], q.last[b] = to, nil32, q.back[to]
	if q.back[to] == nil32 {
		q.front[to] = b
	} else {
		q.next[q.back[to]] = b
	}
	q.back[to] = b
	q.size[to]++
}

// remove takes a block out of its queue, if it is in one.
func (q *queues) remove(b int32) {
	from := q.in[b]
	if from == nowhere {
		return
	}
	next, last := q.next[b], q.last[b]
	if last == nil32 {
		q.front[from] = next
	} else {
		q.next[last] = next
	}
	if next == nil32 {
		q.back[from] = last
	} else {
		q.last[next] = last
	}
	q.in[b] = nowhere
	q.size[from]--
}
