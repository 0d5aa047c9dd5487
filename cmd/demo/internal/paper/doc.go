// Package paper has caches on paper: eviction policies that know which blocks they hold,
// and neither pages nor bytes. They are there to compare the engine's policies with.
//
// The model is that of an atomic replay. Requests come one after the other. A request
// looks up its prompt, hits the leading run of blocks that are cached, and then uses all
// its blocks:
//
//	hits := 0
//	for hits < len(blocks) && cache.Has(blocks[hits]) {
//		hits++
//	}
//	cache.Use(i, blocks)
//
// A block is known by its number, which stands for its contents and everything before it,
// so a block has one predecessor, and each block of a prompt is used at least as often as
// the blocks behind it.
//
// [Distances] needs no capacity: it finds in one pass what LRU hits at each of them.
package paper
