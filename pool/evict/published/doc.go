// Package published has eviction policies from papers, to compare with. A program that imports it
// may name them in windows.Config.EvictionPolicy. What each evicts first:
//
//	import _ "github.com/kvactor/kvactor/pool/evict/published"
//
//	arc              used once or more often, by hits among what was evicted   arc.go
//	s3_fifo          not used again in a small queue for new blocks            s3fifo.go
//	w_tinylfu        used less often than what it would replace                tinylfu.go
//	gdsf_depth       the leaf of the fewest uses times work                    gdsf.go
//	superseded_lru   the rest of a run that a prompt has left, then lru        superseded.go
//
// Each ranks single blocks: perBlock does the bookkeeping, and a file has only the rule of its
// policy. TestPublished compares them with their published forms.
//
// A page takes 64 bytes beyond those of package evict, and what a policy remembers of evicted
// blocks. Add, Remove and First take O(log pages).
package published
