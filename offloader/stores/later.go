package stores

import (
	"context"
	"errors"
	"sync"
)

// ErrURL is in errors of Open functions over a URL that names no store, whatever happens
// outside: of an unknown scheme, or with a parameter that there is not.
var ErrURL = errors.New("URL of a store")

// Later is a store that may be down when the process starts. It is opened by the first of its
// calls, or by Open, and by later ones as long as that fails. A call before then fails as a
// call of a store that is down does.
//
// One attempt runs at a time, on a goroutine of its own, and calls wait for it no longer than
// their contexts.
type Later struct {
	open func(context.Context) (Store, error)
	ctx  context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	store   Store         // nil: not opened
	attempt chan struct{} // closed at the end of the attempt under way; nil: none
	err     error         // of the last attempt
}

var _ Store = (*Later)(nil)

// errClosed is the error of calls behind Close.
var errClosed = errors.New("store is closed")

// OpenLater returns a store that open opens, when it can.
func OpenLater(open func(context.Context) (Store, error)) *Later {
	l := &Later{open: open}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Open opens the store unless it is open. After an error the next call tries again.
func (l *Later) Open(ctx context.Context) error {
	return l.with(ctx, func(Store) error { return nil })
}

// opened returns the store, and waits for an attempt to open it.
func (l *Later) opened(ctx context.Context) (Store, error) {
	l.mu.Lock()
	if l.store != nil || l.ctx.Err() != nil {
		defer l.mu.Unlock()
		if l.ctx.Err() != nil {
			return nil, errClosed
		}
		return l.store, nil
	}
	if l.attempt == nil {
		l.attempt = make(chan struct{})
		go l.try(l.attempt)
	}
	attempt := l.attempt
	l.mu.Unlock()
	select {
	case <-attempt:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store, l.err
}

// try makes one attempt.
func (l *Later) try(attempt chan struct{}) {
	s, err := l.open(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.ctx.Err() != nil {
		err = errors.Join(errClosed, s.Close())
	}
	if l.err = err; err == nil {
		l.store = s
	}
	l.attempt = nil
	close(attempt)
}

// with makes one call of the store.
func (l *Later) with(ctx context.Context, call func(Store) error) error {
	s, err := l.opened(ctx)
	if err != nil {
		return err
	}
	return call(s)
}

// Put implements Store.
func (l *Later) Put(ctx context.Context, objects []Object) error {
	return l.with(ctx, func(s Store) error { return s.Put(ctx, objects) })
}

// Get implements Store.
func (l *Later) Get(ctx context.Context, keys []Key, bodies [][]byte) error {
	clear(bodies)
	return l.with(ctx, func(s Store) error { return s.Get(ctx, keys, bodies) })
}

// Has implements Store.
func (l *Later) Has(ctx context.Context, keys []Key, found []bool) error {
	clear(found)
	return l.with(ctx, func(s Store) error { return s.Has(ctx, keys, found) })
}

// Delete implements Store.
func (l *Later) Delete(ctx context.Context, keys []Key) error {
	return l.with(ctx, func(s Store) error { return s.Delete(ctx, keys) })
}

// Close implements Store. A store that an attempt opens afterwards is closed at once.
func (l *Later) Close() error {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store
	l.store = nil
	if s == nil {
		return nil
	}
	return s.Close()
}
