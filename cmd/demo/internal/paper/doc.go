// Package paper finds what cannot be had from an engine: what a policy would hit that knows the
// trace, and what LRU hits at each capacity. Both bound the engine's policies.
//
// The model is that of an atomic replay. Requests come one after the other. A request
// looks up its prompt, hits the leading run of blocks that are cached, and then uses all
// its blocks:
//
//	hits := 0
//	for hits < len(blocks) && optimum.Has(blocks[hits]) {
//		hits++
//	}
//	optimum.Use(i, blocks)
//
// A block is known by its number, which stands for its contents and everything before it,
// so a block has one predecessor, and each block of a prompt is used at least as often as
// the blocks behind it.
//
// [Distances] needs no capacity: it finds in one pass what LRU hits at each of them.
package paper
