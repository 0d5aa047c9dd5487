package actors

import (
	"context"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// storeActor writes pages to the store, behind everything else: it names them by what the
// tree has told of their blocks, and tasks encode and write them. Nothing waits for it but a
// Flush. It has a goroutine of its own, because names are hashes over tokens.
//
//	the tree ──blocksChanged──▶ index
//	                             ▼ names
//	the offloader ──savedPages─▶ saveJob ─▶ queue ─▶ jobWriter
//
// A block number names another block later. What makes a name right is the order in which the
// messages come.
//
// What it does is best effort, since a page that is not saved is computed again: every
// bound drops pages and none makes a sender wait. What is on its way is bounded by the save
// pages, which a job keeps until it has encoded its objects or knows that it writes none.
type storeActor struct {
	saver      *saver // of which the offloader's actor has the rest
	self       *mailbox.Mailbox
	background *background
	device     gpu.Device
	pools      []gpu.Pool
	point      failpoint.Point

	tokensPerBlock int
	yields         bool // a jobWriter makes way between two pages

	index *blockkeys.Index
	jobs  []*saveJob // that are not over; a jobWriter has each of the first Concurrency

	// current is the message that is received, for a restart after a panic over it.
	current any
}

// saveJob is what one call of the store saves: a round, or a part of one.
//
// The actor makes it, lends it to a task, and gets it back when the task is over.
type saveJob struct {
	items   []*jobItem
	ticket  messages.Ticket // when it has passed, the save pages can be read
	started bool            // a jobWriter has it, which gives the save pages back
	over    chan struct{}   // closed when it is over
}

// jobItem is a page of a job. Two may have one key, if a block has left the tree and its tokens
// were stored again: the page is written twice.
type jobItem struct {
	savedPage
	named blockkeys.Described
	key   stores.Key
	lost  bool // the store has not got it
}

// Abort does nothing: no caller waits for it.
func (*saveJob) Abort(error) {}

// notSaved tells the coordinator of pages that were to be saved and are not in the store, or
// without items that there is room again.
type notSaved struct{ items []protocol.SaveItem }

// Abort does nothing: no caller waits for it.
func (*notSaved) Abort(error) {}

// blocksChanged tells the store's actor what has entered and left the tree.
type blocksChanged struct {
	changes *protocol.Changes
	all     bool // what has entered is all that is there
}

// Abort does nothing: no caller waits for it.
func (*blocksChanged) Abort(error) {}

// Receive takes pages to write, and serves flushes.
//
// current is set without a defer: a deferred reset would run in a panic, too.
func (a *storeActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Restarting:
		a.restart()
	case *actor.Stopping:
		close(a.saver.stopped)
	default:
		if !library(m) {
			a.current = m
			a.receive(m)
			a.current = nil
		}
	}
}

// receive serves one message. The points at which a test makes it panic are between its parts,
// and in no function that restart calls.
func (a *storeActor) receive(message any) {
	a.point.Hit("store")
	a.point.Step("store")
	switch m := message.(type) {
	case *blocksChanged:
		if m.all {
			a.index = a.emptyIndex()
		}
		a.index.Apply(m.changes)
	case *savedPages:
		a.accept(m)
	case *saveJob:
		a.finished(m)
	case *forward:
		a.flush(m)
	}
}

// restart ends what the message was about over which the actor has panicked, so that each of
// its save pages is given back once, and goes on with the rest. A page that is not saved is
// computed again; a save page that is not given back would be lost as long as the engine runs.
func (a *storeActor) restart() {
	switch m := a.current.(type) {
	case *savedPages:
		a.drop(m.items, m.ticket)
	case *saveJob:
		a.end(m)
	}
	a.current = nil
	// A message may have been lost, and what comes behind it names blocks that may be others. The
	// recovery has the tree tell all again.
	a.index = a.emptyIndex()
	a.next()
}

// emptyIndex makes the index of an empty tree, or of one of which nothing was told.
func (a *storeActor) emptyIndex() *blockkeys.Index {
	return blockkeys.New(a.saver.client.Fingerprint(), a.tokensPerBlock)
}

// jobBytes is how many bytes of pages a job has at most, unless one page has more. It is
// large against the latency of a store, and small enough that one job is encoded while
// another one is written.
const jobBytes = 16 << 20

// accept names pages by what the tree has told so far, and makes jobs of them. It takes each
// page out of the message when a job has it.
func (a *storeActor) accept(m *savedPages) {
	var job *saveJob
	size := int64(0)
	for len(m.items) > 0 {
		a.point.Step("store")
		it := m.items[0]
		d, ok := a.index.Describe(it.block)
		m.items = m.items[1:]
		if !ok {
			a.unnamed(it, m.ticket)
			continue
		}
		d.Block.Pool = it.pool
		bytes := a.saver.client.PageBytes(it.pool)
		if job == nil || size+bytes > jobBytes || len(job.items) == stores.MaxBatch {
			job, size = a.newJob(m.ticket), 0
		}
		size += bytes
		job.items = append(job.items, &jobItem{savedPage: it, named: d})
	}
	a.next()
}

// unnamed gives back the save page of a block that has no name. One that is stored in part is no
// loss: it is saved when it is whole.
func (a *storeActor) unnamed(it savedPage, after messages.Ticket) {
	if !a.index.Partial(it.block) {
		a.saver.Dropped(1)
	}
	a.giveBack([]savedPage{it}, after)
	a.tell([]savedPage{it})
}

// newJob adds an empty job to the queue.
func (a *storeActor) newJob(ticket messages.Ticket) *saveJob {
	job := &saveJob{ticket: ticket, over: make(chan struct{})}
	a.jobs = append(a.jobs, job)
	return job
}

// drop gives save pages back that nothing is written of, and counts them.
func (a *storeActor) drop(items []savedPage, after messages.Ticket) {
	a.saver.Dropped(len(items))
	a.giveBack(items, after)
	a.tell(items)
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
	a.saver.coordinator.PostUserMessage(m)
}

// giveBack returns save pages once the copies to them are over.
//
// A copy to such a page may be under way: another one to the same page would be mixed with
// it.
func (a *storeActor) giveBack(items []savedPage, after messages.Ticket) {
	if len(items) == 0 {
		return
	}
	device, saver := a.device, a.saver
	a.background.run(func(ctx context.Context) {
		if device.Sync(ctx, after) == nil {
			saver.release(items)
		}
	})
}

// next starts jobs as long as there may be more.
func (a *storeActor) next() {
	for _, job := range a.jobs[:min(len(a.jobs), a.saver.config.Concurrency)] {
		if !job.started {
			job.started = true
			a.start(job)
		}
	}
}

// start writes the pages of a job on a task.
//
// The task uses copies of the actor's fields, so a restart of the actor disturbs no job.
// It always posts the job, also after an error, for it takes a place until then.
func (a *storeActor) start(job *saveJob) {
	w := &jobWriter{saver: a.saver, job: job, device: a.device, pools: a.pools, yields: a.yields}
	self := a.self
	a.background.run(func(ctx context.Context) {
		defer self.PostUserMessage(job)
		w.write(ctx)
	})
}

// finished ends a job that was written.
//
// The coordinator is told of what was lost, so that these blocks do not count as saved and
// are saved again at their next occasion.
func (a *storeActor) finished(job *saveJob) {
	var lost []savedPage
	for _, it := range job.items {
		if it.lost {
			lost = append(lost, it.savedPage)
		}
	}
	a.tell(lost) // before a Flush that waits for the job comes to its end
	a.point.Step("store")
	a.end(job)
	a.next()
}

// end counts a job as over, once.
func (a *storeActor) end(job *saveJob) {
	i := slices.Index(a.jobs, job)
	if i < 0 {
		return
	}
	a.jobs = slices.Delete(a.jobs, i, i+1)
	close(job.over)
}

// flush answers the jobs that are not over. Its caller waits for these and no later ones, so that
// a Flush of a busy engine ends.
func (a *storeActor) flush(f *forward) {
	r := f.request.(*protocol.Flush)
	r.Open = nil
	for _, job := range a.jobs {
		r.Open = append(r.Open, job)
	}
	f.port.answer(r, f.sender)
}
