package fleet

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/kvactor/kvactor/offloader/stores"
)

// stage keeps what an engine writes to a store until publish. So what the engines of a
// fleet find in their store within a window does not depend on which of them was faster.
type stage struct {
	stores.Store
	mu      sync.Mutex
	pending map[stores.Key][]byte
}

func newStage(s stores.Store) *stage { return &stage{Store: s, pending: map[stores.Key][]byte{}} }

// Put keeps objects for publish.
func (s *stage) Put(_ context.Context, objects []stores.Object) error {
	if err := stores.CheckObjects(objects); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.pending[o.Key] = slices.Clone(o.Body)
	}
	return nil
}

// Close does nothing: the store is that of all engines.
func (s *stage) Close() error { return nil }

// publish writes what was put since the last time, in the order of the keys.
func (s *stage) publish(ctx context.Context) error {
	s.mu.Lock()
	pending := s.pending
	s.pending = map[stores.Key][]byte{}
	s.mu.Unlock()
	var objects []stores.Object
	for key, body := range pending {
		objects = append(objects, stores.Object{Key: key, Body: body})
	}
	slices.SortFunc(objects, func(a, b stores.Object) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for batch := range slices.Chunk(objects, stores.MaxBatch) {
		if err := s.Store.Put(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
