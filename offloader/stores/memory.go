package stores

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Memory is a store in the memory of the process, without a limit. It is meant for
// tests and for stores that last as long as a script. The zero Memory is ready to use.
type Memory struct {
	mu      sync.Mutex
	bodies  map[Key][]byte
	bytes   int64
	failing int
}

var _ Store = (*Memory)(nil)

// errInjected is the error of calls that Fail has ordered to fail.
var errInjected = errors.New("memory store: failure ordered by a test")

// Fail makes the next calls fail, n of them, and replaces what an earlier Fail left.
func (m *Memory) Fail(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = n
}

// Len returns how many objects the store has, and the bytes of their bodies.
func (m *Memory) Len() (objects int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.bodies), m.bytes
}

// begin starts a call: it returns with the lock held, or an error without it.
func (m *Memory) begin(ctx context.Context, refusal error) error {
	if err := errors.Join(refusal, ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	if m.failing > 0 {
		m.failing--
		m.mu.Unlock()
		return errInjected
	}
	return nil
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, objects []Object) error {
	if err := m.begin(ctx, CheckObjects(objects)); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.bodies == nil {
		m.bodies = map[Key][]byte{}
	}
	for _, o := range objects {
		m.bytes += int64(len(o.Body) - len(m.bodies[o.Key]))
		m.bodies[o.Key] = slices.Clone(o.Body)
	}
	return nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, keys []Key, bodies [][]byte) error {
	clear(bodies)
	if err := m.begin(ctx, CheckKeys(keys, len(bodies))); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for i, key := range keys {
		bodies[i] = slices.Clone(m.bodies[key])
	}
	return nil
}

// Has implements Store.
func (m *Memory) Has(ctx context.Context, keys []Key, found []bool) error {
	clear(found)
	if err := m.begin(ctx, CheckKeys(keys, len(found))); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for i, key := range keys {
		_, found[i] = m.bodies[key]
	}
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, keys []Key) error {
	if err := m.begin(ctx, CheckKeys(keys, len(keys))); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, key := range keys {
		m.bytes -= int64(len(m.bodies[key]))
		delete(m.bodies, key)
	}
	return nil
}

// Close implements Store. The objects stay, and the store may still be used.
func (m *Memory) Close() error { return nil }
