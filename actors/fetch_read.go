package actors

import (
	"cmp"
	"context"
	"sync"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/guard"
)

// The functions of this file read what a fetch wants from the store.
//
//	caller's goroutine  get ──▶ get ──────────────▶ get ──▶ …
//	another             └─────▶ decode, attach ────▶ decode, attach

// read reads objects, in batches. What cannot be read counts as not stored. release ends the
// fetch's claim; with wait there is none.
//
// FetchBytes bounds the memory of one fetch. Blocks are walked from the front, so that
// what is left out is the end of the prefix, and what is read can be matched without it.
func (f *fetch) read(ctx context.Context, wanted [][]bool) (release func(), wait <-chan struct{}) {
	var objects []object
	var keys []stores.Key
	var total int64
	for b := range f.keys {
		for p := range wanted {
			if !wanted[p][b] {
				continue
			}
			o := object{messages.PoolID(p), b}
			if total += f.client.PageBytes(o.pool); total > f.engine.saver.config.FetchBytes {
				f.stored[p][b] = false
				continue
			}
			objects, keys = append(objects, o), append(keys, f.key(o))
		}
	}
	release, wait = f.client.Claim(keys)
	if wait != nil {
		return nil, wait
	}
	if err := f.readAll(ctx, objects, keys); err != nil {
		// A store that fails is not asked for the rest.
		for _, o := range objects {
			f.stored[o.pool][o.block] = f.bytes[o.pool][o.block] != nil
		}
	}
	return release, nil
}

// readAll reads objects in batches, up to an error of the store. A batch is decoded while the
// next one is read: checksums cost a fetch no time of their own. When readAll returns, all that
// was read is decoded.
func (f *fetch) readAll(ctx context.Context, objects []object, keys []stores.Key) error {
	wait := func() {}
	defer func() { wait() }()
	for len(objects) > 0 {
		n, size := f.batch(objects)
		bodies, err := f.client.Get(ctx, keys[:n])
		wait() // no more than one batch is read ahead of the decoding
		wait = f.decode(objects[:n], size, bodies, err)
		if err != nil && !guard.Partial(err) {
			return err // of a BatchError those that failed are misses
		}
		objects, keys = objects[n:], keys[n:]
	}
	return nil
}

// readBytes bounds the bytes of one call. The bodies of two calls are in memory beside
// their pages: those of one are decoded while the next is read.
const readBytes = 32 << 20

// batch is how many of the objects one call reads, and the bytes of their pages.
//
// It is at least one, however large an object is.
func (f *fetch) batch(objects []object) (n int, size int64) {
	limit := cmp.Or(f.engine.settings.FetchWith.BatchBytes, readBytes)
	for i, o := range objects {
		bytes := f.client.PageBytes(o.pool)
		if i > 0 && size+bytes > limit || i == stores.MaxBatch {
			return i, size
		}
		size += bytes
	}
	return len(objects), size
}

// decode verifies what a get has answered and keeps the pages, of size bytes in all, beside its
// caller; wait returns when it is over.
func (f *fetch) decode(
	objects []object, size int64, bodies [][]byte, err error,
) (wait func()) {
	decode := func() {
		inParts(len(objects), size, func(from, to int) {
			space, done := f.client.Space(f.namespace) // a Space is of one goroutine
			defer done()
			for i := from; i < to; i++ {
				var body []byte
				if bodies != nil {
					body = bodies[i]
				}
				f.decodeOne(space, objects[i], body, stores.Failed(err, i))
			}
		})
	}
	if f.engine.settings.Simulated() {
		decode()
		return func() {}
	}
	var running sync.WaitGroup
	running.Go(decode)
	return running.Wait
}

// decodeOne verifies one body, nil if there is none. Parts of a batch run at once: each object
// has its own places in stored and bytes.
func (f *fetch) decodeOne(space *stores.Space, o object, body []byte, err error) {
	block := f.blocks[o.block]
	block.Pool = o.pool
	var page []byte
	if err == nil {
		page = f.client.Open(space, f.key(o), block, body)
	}
	f.stored[o.pool][o.block], f.bytes[o.pool][o.block] = page != nil, page
	f.client.Count(func(c *inspect.StoreStats) {
		switch {
		case page != nil:
			c.FetchedObjects++
			c.FetchedBytes += int64(len(body))
		case body == nil:
			c.Misses++
		}
	})
}
