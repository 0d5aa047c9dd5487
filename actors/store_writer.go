package actors

import (
	"context"
	"runtime"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/offloader/stores"
)

// jobWriter writes the pages of one job to the store, on a task.
//
//	copies are over ─▶ which objects are missing? ─▶ encode those ─▶ write those
//	                   └─ free the other save pages  └─ free their save pages
//
// The store is asked first, and the bytes of a page are touched only if they will be
// written. While a store does not answer, its jobs keep their save pages; once all are in
// use, the offloader drops what else is to be saved without reading it.
type jobWriter struct {
	*storeClient
	job       *saveJob
	device    gpu.Device
	pools     []gpu.Pool
	offloader *mailbox.Mailbox

	objects []stores.Object // to be written, each key once
	pages   []int           // of the objects, by their places in the job
}

// write writes the pages of the job, and notes in it what was saved and what was lost.
func (w *jobWriter) write(ctx context.Context) {
	w.job.lost = map[stores.Key]bool{}
	w.name()
	if w.device.Sync(ctx, w.job.ticket) != nil {
		w.countDropped()
		return // the save pages may still be written to: they are not used again
	}
	w.keepMissing(ctx)
	if len(w.objects) == 0 {
		return
	}
	encoded := w.encode(ctx)
	// Before the store is called: the objects have their own bytes, and save pages are few.
	w.free(true)
	if encoded {
		w.put(ctx)
	}
}

// name names the objects of the job.
//
// Two blocks of a job can have one key, if one has left the tree and its tokens were
// stored again. The object of such a key has the first of their pages.
func (w *jobWriter) name() {
	seen := make(map[stores.Key]bool, len(w.job.named))
	for i := range w.job.named {
		d := &w.job.named[i]
		key := d.Key.Key(d.Block.Pool)
		w.job.keys = append(w.job.keys, key)
		if !seen[key] {
			seen[key] = true
			w.objects, w.pages = append(w.objects, stores.Object{Key: key}), append(w.pages, i)
		}
	}
}

// keepMissing asks which of the objects the store lacks, keeps these, and frees the save
// pages of the others. A key names a whole prefix, so what the store has under it is the
// same page: to ask first is a small call, and saves the bytes of all that another engine
// has written.
func (w *jobWriter) keepMissing(ctx context.Context) {
	keys := make([]stores.Key, len(w.objects))
	for i := range w.objects {
		keys[i] = w.objects[i].Key
	}
	found, err := w.has(ctx, keys)
	if err != nil {
		w.countDropped()
	}
	if w.config.WriteOnly {
		w.readFound(ctx, found)
	}
	n := 0
	for i := range w.objects {
		if err == nil && !found[i] {
			w.objects[n], w.pages[n] = w.objects[i], w.pages[i]
			n++
		}
	}
	w.objects, w.pages = w.objects[:n], w.pages[:n]
	w.free(false)
}

// readFound reads the objects that the store has already, and takes those for missing that cannot
// be used. An engine that fetches learns of them by its fetches, and one that only saves in no
// other way. Each is read once, for as many bytes as it would have taken to write it.
func (w *jobWriter) readFound(ctx context.Context, found []bool) {
	var keys []stores.Key
	var at []int
	for i := range found {
		if found[i] && !w.isUsable(w.objects[i].Key) {
			keys, at = append(keys, w.objects[i].Key), append(at, i)
		}
	}
	if len(keys) == 0 {
		return
	}
	bodies, err := w.get(ctx, keys)
	for k, i := range at {
		switch d := &w.job.named[w.pages[i]]; {
		case stores.Failed(err, k) != nil || k >= len(bodies): // it is read the next time
		case bodies[k] == nil:
			w.avoid(keys[k]) // the store has said that it has the object
			found[i] = false
		default:
			found[i] = w.check(d, keys[k], bodies[k])
		}
	}
}

// check tells whether the body of an object can be used, and remembers it.
func (w *jobWriter) check(d *blockkeys.Described, key stores.Key, body []byte) bool {
	space, done := w.space(d.Namespace)
	defer done()
	if _, wrong := space.Page(body, d.Block, int(w.pageBytes(int(d.Block.Pool)))); wrong != nil {
		w.reject(key, wrong)
		return false
	}
	w.markUsable(key)
	return true
}

// countDropped notes that the objects are not in the store.
func (w *jobWriter) countDropped() {
	w.Dropped(len(w.objects))
	for i := range w.objects {
		w.job.lost[w.objects[i].Key] = true
	}
}

// free gives the save pages of the objects back, or all others of the job.
func (w *jobWriter) free(ofObjects bool) {
	var items []savedPage
	next := 0
	for i := range w.job.items {
		is := next < len(w.pages) && w.pages[next] == i
		if is {
			next++
		}
		if is == ofObjects {
			items = append(items, w.job.items[i])
		}
	}
	if len(items) > 0 {
		w.offloader.PostUserMessage(&savePagesFree{items})
	}
}

// encode makes the bodies of the objects; false if the engine ends or the breaker has
// opened, so that they would not be written.
//
// It yields after each page: to encode takes about as long as some rounds of the actors, and
// nothing waits for it.
func (w *jobWriter) encode(ctx context.Context) bool {
	select {
	case w.encoders <- struct{}{}:
	case <-ctx.Done():
		w.countDropped()
		return false
	}
	defer func() { <-w.encoders }()
	if w.refuses() {
		w.countDropped()
		return false
	}
	for o := range w.objects {
		it, d := &w.job.items[w.pages[o]], &w.job.named[w.pages[o]]
		space, done := w.space(d.Namespace)
		page := gpu.HostPage(w.device, w.pools[it.pool], it.page)
		buffer := make([]byte, 0, space.BodyBytes(d.Block, len(page)))
		w.objects[o].Body = space.Encode(buffer, d.Block, page)
		done()
		if !w.inline {
			runtime.Gosched()
		}
	}
	return true
}

// put writes the objects.
func (w *jobWriter) put(ctx context.Context) {
	objects := w.objects
	_, err := ask(ctx, w.storeClient, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.config.Store.Put(ctx, objects)
	})
	for i := range objects {
		if stores.Failed(err, i) != nil {
			w.Dropped(1)
			w.job.lost[objects[i].Key] = true
			continue
		}
		w.job.saved++
		w.saved(&objects[i])
	}
}

// newEncoders makes the places of jobs that are encoded at a time. The work is the CPU's, so
// most cores stay free for the requests; with four cores and fewer it is one place.
func newEncoders() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4)) }
