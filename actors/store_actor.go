package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// storeActor writes pages to the store, behind everything else: it names them by what
// the tree tells it of blocks, and tasks encode and write them. Nothing waits for it but
// a Flush.
//
// What it does is best effort, since a page that is not saved is computed again: every
// bound drops pages and none makes a sender wait. bytes is the sum over the jobs in open and
// at most SaveBytes.
type storeActor struct {
	index       *blockkeys.Index
	client      *storeClient
	offloader   *mailbox.Mailbox
	coordinator *mailbox.Mailbox
	self        *mailbox.Mailbox
	background  *background
	device      gpu.Device
	pools       []gpu.Pool
	point       failpoint.Point

	queue   []*saveJob // that wait for their turn
	running int
	bytes   int64 // of pages that were copied out for queued and running jobs
	last    uint64
	open    map[uint64]bool // jobs that are not over, by number
	saved   int             // objects since the last flush
	flushes []*forward
}

// saveJob is what one round has saved.
//
// The actor makes it, lends it to one task, and gets it back as the message that the task
// is over. items of pages, named and keys are parallel.
type saveJob struct {
	number uint64
	pages  *savedPages
	named  []blockkeys.Described // of the pages
	bytes  int64
	keys   []stores.Key // of the pages
	saved  int
	lost   map[stores.Key]bool // what the store has not taken
}

// Abort does nothing: no caller waits for it.
func (*saveJob) Abort(error) {}

// notSaved tells the coordinator of pages that were to be saved and are not in the store.
type notSaved struct{ items []protocol.SaveItem }

// Abort does nothing: no caller waits for it.
func (*notSaved) Abort(error) {}

// blocksChanged tells the store's actor what has entered and left the tree.
type blocksChanged struct{ changes *protocol.Changes } // nil: the tree is empty

// Abort does nothing: no caller waits for it.
func (*blocksChanged) Abort(error) {}

// Receive takes pages to write, and serves flushes.
func (a *storeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *blocksChanged:
		if m.changes == nil {
			a.forget()
			return
		}
		a.index.Apply(m.changes)
	case *savedPages:
		a.point.Hit("store")
		a.accept(m)
	case *saveJob:
		a.finished(m)
	case *forward:
		a.flush(m)
	case *actor.Restarting:
		a.forget() // what it knew of the tree cannot be trusted
	case *actor.Stopping:
		for _, f := range a.flushes {
			f.Abort(mailbox.ErrStopped)
		}
		a.flushes = nil
	}
}

// forget empties the index: blocks that it does not know are not saved.
func (a *storeActor) forget() {
	a.index = blockkeys.New(a.client.fingerprint, a.client.geometry.Pools[0].TokensPerBlock)
}

// accept names the pages and makes a job of them. Pages that cannot be named, or that
// are beyond the bound, are dropped.
//
// Names are taken now and not when the job is written: the tree may have changed by then,
// and a block number would name another block.
func (a *storeActor) accept(m *savedPages) {
	a.client.dropped.Add(int64(m.dropped))
	job := &saveJob{pages: &savedPages{ticket: m.ticket}}
	var unnamed []savedPage
	for _, it := range m.items {
		d, ok := a.index.Describe(it.block)
		size := int64(len(it.bytes))
		if ok && a.bytes+job.bytes+size > a.client.config.SaveBytes && size > 0 {
			a.client.dropped.Add(1)
			ok = false
		}
		if !ok {
			unnamed = append(unnamed, it)
			continue
		}
		d.Block.Pool = it.pool
		job.bytes += size
		job.pages.items, job.named = append(job.pages.items, it), append(job.named, d)
	}
	a.giveBack(unnamed, m.ticket)
	a.tell(unnamed)
	if len(job.named) == 0 {
		return
	}
	a.last++
	job.number = a.last
	a.open[job.number], a.bytes = true, a.bytes+job.bytes
	a.queue = append(a.queue, job)
	a.next()
}

// tell tells the coordinator of pages that are not saved.
func (a *storeActor) tell(items []savedPage) {
	if len(items) == 0 {
		return
	}
	m := &notSaved{}
	for i := range items {
		m.items = append(m.items, protocol.SaveItem{Pool: items[i].pool, Block: items[i].block})
	}
	a.coordinator.PostUserMessage(m)
}

// giveBack returns save pages once the copies to them are over.
//
// A copy to such a page may be under way: another one to the same page would be mixed with
// it.
func (a *storeActor) giveBack(items []savedPage, after messages.Ticket) {
	if len(items) == 0 {
		return
	}
	device, offloader := a.device, a.offloader
	a.background.run(func(ctx context.Context) {
		if device.Sync(ctx, after) == nil {
			offloader.PostUserMessage(&savePagesFree{items})
		}
	})
}

// next starts jobs as long as there may be more.
func (a *storeActor) next() {
	for a.running < a.client.config.Concurrency && len(a.queue) > 0 {
		job := a.queue[0]
		a.queue = append(a.queue[:0], a.queue[1:]...)
		a.running++
		a.start(job)
	}
}

// start writes the pages of a job on a task.
//
// The task uses copies of the actor's fields, so a restart of the actor disturbs no job.
// It always posts the job, also after an error, for running and bytes count it until then.
func (a *storeActor) start(job *saveJob) {
	client, device, pools, offloader, self := a.client, a.device, a.pools, a.offloader, a.self
	a.background.run(func(ctx context.Context) {
		defer self.PostUserMessage(job)
		if err := device.Sync(ctx, job.pages.ticket); err != nil {
			client.dropped.Add(int64(len(job.named)))
			job.lost = map[stores.Key]bool{}
			for i := range job.named {
				key := job.named[i].Key.Key(job.named[i].Block.Pool)
				job.keys, job.lost[key] = append(job.keys, key), true
			}
			return // the save pages may still be written to: they are not used again
		}
		objects := client.encode(job, func(it *savedPage) []byte {
			if it.bytes != nil {
				return it.bytes
			}
			return gpu.HostPage(device, pools[it.pool], it.page)
		})
		// Before the store is called: the objects have their own bytes, and save pages are
		// few.
		offloader.PostUserMessage(&savePagesFree{job.pages.items})
		job.saved, job.lost = client.put(ctx, objects)
	})
}

// encode makes the objects of a job, each once.
//
// Two blocks of a job can have one key, if one has left the tree and its tokens were
// stored again. Blocks of a round mostly have one namespace, so its space is kept from one
// to the next.
func (c *storeClient) encode(job *saveJob, bytes func(*savedPage) []byte) []stores.Object {
	var objects []stores.Object
	var first []int // the page of each object, by its place in the job
	var size int64
	seen := map[stores.Key]bool{}
	for i := range job.named {
		d := &job.named[i]
		key := d.Key.Key(d.Block.Pool)
		job.keys = append(job.keys, key)
		if seen[key] {
			continue
		}
		seen[key] = true
		size += c.pageBytes(int(d.Block.Pool))
		objects, first = append(objects, stores.Object{Key: key}), append(first, i)
	}
	inParts(len(objects), size, func(from, to int) {
		var space *stores.Space // of one goroutine
		var of messages.Namespace
		done := func() {}
		for o := from; o < to; o++ {
			d := &job.named[first[o]]
			if space == nil || of != d.Namespace {
				done()
				space, done = c.space(d.Namespace)
				of = d.Namespace
			}
			objects[o].Body = space.Encode(nil, d.Block, bytes(&job.pages.items[first[o]]))
		}
		done()
	})
	return objects
}

// finished ends a job.
//
// The coordinator is told of what was lost, so that these blocks do not count as saved and
// are saved again at their next occasion.
func (a *storeActor) finished(job *saveJob) {
	a.running--
	a.bytes -= job.bytes
	a.saved += job.saved
	delete(a.open, job.number)
	var lost []savedPage
	for i, key := range job.keys {
		if job.lost[key] {
			lost = append(lost, job.pages.items[i])
		}
	}
	a.tell(lost)
	a.next()
	flushes := a.flushes
	a.flushes = nil
	for _, f := range flushes {
		a.answerFlush(f)
	}
}

// flush answers when all jobs that were there before are over.
func (a *storeActor) flush(f *forward) {
	f.number = a.last
	a.answerFlush(f)
}

// answerFlush answers a flush, or keeps it while a job up to its number is open. Later jobs
// do not count, so that a busy engine still answers.
func (a *storeActor) answerFlush(f *forward) {
	if f.aborted {
		return
	}
	for number := range a.open {
		if number <= f.number {
			a.flushes = append(a.flushes, f)
			return
		}
	}
	r := f.request.(*protocol.Flush)
	r.Saved, a.saved = a.saved, 0
	f.port.answer(f.request, f.sender)
}
