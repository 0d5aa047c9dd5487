package oracle

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Store is a store beyond host memory: the names of its objects, for the model has no
// bytes. It outlives the models that are opened on it, which must have the same pools.
type Store struct {
	objects map[string]bool
	failing int
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{objects: map[string]bool{}} }

// Fail makes the next calls fail, n of them, and replaces what an earlier Fail left. A
// request makes a call to find out which of its pages are there, and a second one to
// write or read the others.
func (s *Store) Fail(n int) { s.failing = n }

// call makes one call and tells whether the store has answered.
func (s *Store) call() bool {
	if s.failing > 0 {
		s.failing--
		return false
	}
	return true
}

// SavePolicy says when pages are saved.
type SavePolicy int

// The policies.
const (
	SaveOnReuse   SavePolicy = iota // all pages of a block, when an admission reuses it whole
	SaveOnCommit                    // a page when it is first stored in its pool
	SaveHostEvict                   // a page that host memory drops
)

// StoreConfig attaches a model to a store.
type StoreConfig struct {
	Store       *Store
	Save        SavePolicy
	MinPriority messages.Priority
}

// StoreTier is the part of a model that saves to a store and fetches from it.
type StoreTier struct {
	o          *Oracle
	candidates []candidate // pages that the last request has made ones to be saved
	saved      int         // objects since the last Flush
}

// StoreOf returns the store's part of a model. It refuses with ErrNotSupported if there is
// none.
func StoreOf(o *Oracle) *StoreTier { return o.storeTier }

// candidate is a page that is saved when the request is over, if it is still there and
// its block has the priority then.
type candidate struct {
	pool  *pool
	block *block
}

// saves reports whether pages are saved by a policy.
func (t *StoreTier) saves(by SavePolicy) bool {
	return t.o.cfg.Store != nil && t.o.cfg.Store.Save == by
}

// saveFirst notes that a pool has stored a block that it did not have.
func (t *StoreTier) saveFirst(p *pool, b *block) {
	if t.saves(SaveOnCommit) {
		t.candidates = append(t.candidates, candidate{p, b})
	}
}

// saveReused notes that an admission has reused a block whole.
func (t *StoreTier) saveReused(b *block) {
	if !t.saves(SaveOnReuse) {
		return
	}
	for _, p := range t.o.pool {
		t.candidates = append(t.candidates, candidate{p, b})
	}
}

// saveDropped saves a page that host memory is about to drop.
func (t *StoreTier) saveDropped(p *pool, b *block) {
	if t.saves(SaveHostEvict) && t.savable(b) {
		t.write([]string{objectName(p, b.namespace, b.key)})
	}
}

// savable reports whether a block is whole and has the priority.
func (t *StoreTier) savable(b *block) bool {
	return t.o.whole(b) && b.priority >= t.o.cfg.Store.MinPriority
}

// objectName is the key of a page in the store.
func objectName(p *pool, ns messages.Namespace, key []symbol) string {
	return fmt.Sprintf("%d %s", p.id, name(ns, key))
}

// writeCandidates saves what the last request has noted.
func (t *StoreTier) writeCandidates() {
	var list []string
	for _, c := range t.candidates {
		if t.o.alive(c.block) && c.block.at[c.pool.id] != nil && t.savable(c.block) {
			list = append(list, objectName(c.pool, c.block.namespace, c.block.key))
		}
	}
	t.candidates = nil
	t.write(list)
}

// write writes what the store lacks of some objects. If it fails they are lost.
func (t *StoreTier) write(list []string) {
	if len(list) == 0 || !t.o.cfg.Store.Store.call() {
		return
	}
	missing := map[string]bool{}
	for _, name := range list {
		if !t.o.cfg.Store.Store.objects[name] {
			missing[name] = true
		}
	}
	if len(missing) == 0 || !t.o.cfg.Store.Store.call() {
		return
	}
	for name := range missing {
		t.o.cfg.Store.Store.objects[name] = true
	}
	t.saved += len(missing)
}

// Flush answers how many objects were saved since the last one. A sequence that is
// named must run.
func (t *StoreTier) Flush(_ context.Context, id messages.SequenceID) (int, error) {
	if err := t.o.begin(); err != nil {
		return 0, err
	}
	if t.o.cfg.Store == nil {
		return 0, refusals.New(messages.ErrNotSupported, "there is no store")
	}
	if id != 0 {
		if _, err := t.o.running(id); err != nil {
			return 0, err
		}
	}
	n := t.saved
	t.saved = 0
	return n, nil
}

// FailStore makes all calls of the store fail until it is called with false.
func (t *StoreTier) FailStore(down bool) {
	t.o.cfg.Store.Store.Fail(0)
	if down {
		const all = 1 << 30
		t.o.cfg.Store.Store.Fail(all)
	}
}
