package actors

import (
	"context"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/actors/mailbox"
)

// namer is a task that names the pages of jobs: it applies what the tree has told of blocks
// and computes their keys, in the order in which the actor got both. A block number names
// another block later, so that order is what makes a name right.
//
// Keys are hashes over tokens. On the actor's goroutine, which often is that of a request,
// they would take longer than the request itself.
//
//	the tree ──blocksChanged──▶ unnamed ─┐
//	the offloader ──savedPages─▶ saveJob ┴─▶ namer (one at a time) ─▶ queue ─▶ jobWriter
//
// The actor lends it the index and the work, and gets it back as the message that the task is
// over.
type namer struct {
	index  *blockkeys.Index
	work   []any
	empty  func() *blockkeys.Index
	failed *mailbox.Panic // nil: none
}

// Abort does nothing: no caller waits for it.
func (*namer) Abort(error) {}

// maxUnnamed is how many messages of the tree wait for a page to be saved before they are
// applied without one. It bounds their memory, and to start a task for each of them would cost
// as much as the request that has changed the tree.
const maxUnnamed = 256

// emptyIndex makes the index of an empty tree, or of one of which nothing was told.
func (a *storeActor) emptyIndex() *blockkeys.Index {
	keeps := blockkeys.UntilTrim
	if a.client.follows() {
		keeps = blockkeys.InTree
	}
	return blockkeys.New(a.client.fingerprint, a.client.geometry.Pools[0].TokensPerBlock, keeps)
}

// name starts a task that names what waits, unless there is one: then what waits is looked at
// when that task is over.
func (a *storeActor) name() {
	if a.naming {
		return
	}
	for _, job := range a.open {
		if job.stage == jobUnnamed {
			job.stage = jobNaming
		}
	}
	n, self := &namer{index: a.index, work: a.unnamed, empty: a.emptyIndex}, a.self
	a.unnamed, a.nameless, a.naming = nil, 0, true
	a.background.run(func(context.Context) {
		defer self.PostUserMessage(n)
		n.run()
	})
}

// run does the work. A panic is kept for the actor: on this goroutine it would end the program.
func (n *namer) run() {
	defer func() {
		if reason := recover(); reason != nil {
			n.failed = mailbox.NewPanic(reason)
		}
	}()
	for _, w := range n.work {
		switch m := w.(type) {
		case *blocksChanged:
			if m.changes == nil {
				n.index = n.empty()
				continue
			}
			n.index.Apply(m.changes)
		case *saveJob:
			m.name(n.index)
		}
	}
	n.index.Trim()
}

// name names the pages of a job, and moves the others to partial and unknown. The lists
// change at the end, so that after a panic the job still has each page once.
func (j *saveJob) name(index *blockkeys.Index) {
	var items, partial, unknown []savedPage
	var named []blockkeys.Described
	for _, it := range j.items {
		d, ok := index.Describe(it.block)
		switch {
		case !ok && index.Partial(it.block):
			partial = append(partial, it)
			continue
		case !ok:
			unknown = append(unknown, it)
			continue
		}
		d.Block.Pool = it.pool
		items, named = append(items, it), append(named, d)
	}
	j.items, j.named, j.partial, j.unknown = items, named, partial, unknown
}

// named queues the jobs that a task has named. Pages without a name are dropped. A panic of
// the task is one of the actor: the index cannot be trusted, and none of the names is used.
func (a *storeActor) named(n *namer) {
	a.naming, a.index = false, n.index
	if n.failed != nil {
		a.index = a.emptyIndex()
	}
	for _, w := range n.work {
		if job, ok := w.(*saveJob); ok {
			a.point.Step("store")
			a.queueNamed(job, n.failed == nil)
		}
	}
	if a.nameless > 0 {
		a.name()
	}
	a.next()
	a.answerFlushes()
	if n.failed != nil {
		panic(n.failed)
	}
}

// queueNamed queues a job that the task has named, and gives the save pages back that have no
// name. Without trust in the names it gives all of them back.
func (a *storeActor) queueNamed(job *saveJob, trusted bool) {
	if !trusted {
		a.abandon(job)
		return
	}
	partial, unknown := job.partial, job.unknown
	job.partial, job.unknown = nil, nil
	a.giveBack(partial, job.ticket)
	a.tell(partial)
	a.drop(unknown, job.ticket)
	if len(job.items) == 0 {
		a.end(job)
		return
	}
	job.stage = jobQueued
	a.queue = append(a.queue, job)
}
