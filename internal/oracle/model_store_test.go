package oracle

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// Store is a store beyond host memory: the names of its objects, for the model has no
// bytes. It outlives the models that are opened on it, which must have the same pools.
type Store struct {
	objects map[string]bool
	failing int
}

// SavePolicy says when pages are saved.
type SavePolicy int

// The policies.
const (
	SaveOnReuse   SavePolicy = iota // all pages of a block, when an admission reuses it whole
	SaveOnCommit                    // a page when it is first stored in its pool
	SaveHostEvict                   // a page that host memory drops
)

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

// saver saves pages to the store, when the policy says so.
type saver struct {
	*layout
	tree       *tree
	candidates []candidate // pages that the last request has made ones to be saved
	saved      int         // objects since the last Flush
}

// candidate is a page that is saved when the request is over, if it is still there and
// its block has the priority then.
type candidate struct {
	pool  *pool
	block *block
}

// saves reports whether pages are saved by a policy.
func (s *saver) saves(by SavePolicy) bool {
	return s.cfg.Store != nil && s.cfg.Store.Save == by
}

// saveFirst notes that a pool has stored a block that it did not have.
func (s *saver) saveFirst(p *pool, b *block) {
	if s.saves(SaveOnCommit) {
		s.candidates = append(s.candidates, candidate{p, b})
	}
}

// saveReused notes that an admission has reused a block whole.
func (s *saver) saveReused(b *block) {
	if !s.saves(SaveOnReuse) {
		return
	}
	for _, p := range s.pools {
		s.candidates = append(s.candidates, candidate{p, b})
	}
}

// saveDropped saves a page that host memory is about to drop.
func (s *saver) saveDropped(p *pool, b *block) {
	if s.saves(SaveHostEvict) && s.savable(b) {
		s.write([]string{objectName(p, b.namespace, b.key)})
	}
}

// savable reports whether a block is whole and has the priority.
func (s *saver) savable(b *block) bool {
	return s.whole(b) && b.priority >= s.cfg.Store.MinPriority
}

// writeCandidates saves what the last request has noted.
func (s *saver) writeCandidates() {
	var list []string
	for _, c := range s.candidates {
		if s.tree.alive(c.block) && c.block.at[c.pool.id] != nil && s.savable(c.block) {
			list = append(list, objectName(c.pool, c.block.namespace, c.block.key))
		}
	}
	s.candidates = nil
	s.write(list)
}

// write writes what the store lacks of some objects. If it fails they are lost.
func (s *saver) write(list []string) {
	if len(list) == 0 || !s.cfg.Store.Store.call() {
		return
	}
	missing := map[string]bool{}
	for _, name := range list {
		if !s.cfg.Store.Store.objects[name] {
			missing[name] = true
		}
	}
	if len(missing) == 0 || !s.cfg.Store.Store.call() {
		return
	}
	for name := range missing {
		s.cfg.Store.Store.objects[name] = true
	}
	s.saved += len(missing)
}

// objectName is the key of a page in the store.
func objectName(p *pool, ns messages.Namespace, key []symbol) string {
	return fmt.Sprintf("%d %s", p.id, name(ns, key))
}
