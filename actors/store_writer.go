package actors

import (
	"context"
	"runtime"

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
	*saver
	job    *saveJob
	device gpu.Device
	pools  []gpu.Pool
	yields bool
}

// write writes the pages of the job, and notes in it what was saved and what was lost.
func (w *jobWriter) write(ctx context.Context) {
	if w.device.Sync(ctx, w.job.ticket) != nil {
		w.lose(w.job.items)
		return // the save pages may still be written to: they are not used again
	}
	missing, others := w.missing(ctx)
	w.free(others)
	if len(missing) == 0 {
		return
	}
	objects := w.encode(ctx, missing)
	// Before the store is called: the objects have their own bytes, and save pages are few.
	w.free(missing)
	if objects != nil {
		w.put(ctx, missing, objects)
	}
}

// missing asks which of the pages the store lacks. A key names a whole prefix, so what the store
// has under it is the same page: to ask first is a small call, and saves the bytes of all that
// another engine has written.
func (w *jobWriter) missing(ctx context.Context) (missing, others []*jobItem) {
	keys := make([]stores.Key, len(w.job.items))
	for i, it := range w.job.items {
		it.key = it.named.Key.Key(it.pool)
		keys[i] = it.key
	}
	found, err := w.client.Has(ctx, keys)
	if err != nil {
		w.lose(w.job.items)
		return nil, w.job.items
	}
	if w.config.WriteOnly {
		w.readFound(ctx, found)
	}
	for i, it := range w.job.items {
		if found[i] {
			others = append(others, it)
		} else {
			missing = append(missing, it)
		}
	}
	return missing, others
}

// readFound reads the objects that the store has already, and takes those for missing that cannot
// be used. An engine that fetches learns of them by its fetches, and one that only saves in no
// other way. Each is read once, for as many bytes as it would have taken to write it.
func (w *jobWriter) readFound(ctx context.Context, found []bool) {
	var keys []stores.Key
	var at []int
	for i, it := range w.job.items {
		if found[i] && !w.client.Usable(it.key) {
			keys, at = append(keys, it.key), append(at, i)
		}
	}
	if len(keys) == 0 {
		return
	}
	bodies, err := w.client.Get(ctx, keys)
	for k, i := range at {
		if stores.Failed(err, k) != nil {
			continue // it is read the next time
		}
		d := &w.job.items[i].named
		space, done := w.client.Space(d.Namespace)
		found[i] = w.client.Open(space, keys[k], d.Block, bodies[k]) != nil
		done()
	}
}

// lose notes that pages are not in the store.
func (w *jobWriter) lose(items []*jobItem) {
	w.Dropped(len(items))
	for _, it := range items {
		it.lost = true
	}
}

// free gives save pages back.
func (w *jobWriter) free(items []*jobItem) {
	var pages []savedPage
	for _, it := range items {
		pages = append(pages, it.savedPage)
	}
	w.release(pages)
}

// encode makes the objects of pages; nil if the engine ends or the breaker has opened, so that they
// would not be written.
//
// It yields after each page: to encode takes about as long as some rounds of the actors, and
// nothing waits for it.
func (w *jobWriter) encode(ctx context.Context, items []*jobItem) []stores.Object {
	select {
	case w.encoders <- struct{}{}:
		defer func() { <-w.encoders }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil || w.client.Refuses() {
		w.lose(items)
		return nil
	}
	objects := make([]stores.Object, len(items))
	for i, it := range items {
		space, done := w.client.Space(it.named.Namespace)
		page := gpu.HostPage(w.device, w.pools[it.pool], it.page)
		buffer := make([]byte, 0, space.BodyBytes(it.named.Block, len(page)))
		objects[i] = stores.Object{Key: it.key, Body: space.Encode(buffer, it.named.Block, page)}
		done()
		if w.yields {
			runtime.Gosched()
		}
	}
	return objects
}

// put writes the objects of pages.
func (w *jobWriter) put(ctx context.Context, items []*jobItem, objects []stores.Object) {
	err := w.client.Put(ctx, objects)
	for i := range items {
		if stores.Failed(err, i) != nil {
			w.lose(items[i : i+1])
			continue
		}
		w.written.Add(1)
	}
}

// newEncoders makes the places of jobs that are encoded at a time. The work is the CPU's, so
// most cores stay free for the requests; with four cores and fewer it is one place.
func newEncoders() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4)) }
