// Package baselines does the work of the benchmarks BenchmarkMatch and
// BenchmarkStore of package bench with what a Go program would use if there
// were no engine: a map of block hashes, an LRU of block hashes, an immutable
// radix tree of tokens. It is a module of its own, so that their dependencies
// stay out of the engine's.
//
// What they do is less than what the engine does: there is one pool and no
// sequence, no page is held, nothing is evicted in order of priority, and the
// two that use hashes trust them. A block here is 16 tokens and a page number,
// as there.
//
//	map    hash of (hash of the block before, tokens) → page
//	lru    the same in hashicorp/golang-lru, which evicts
//	radix  bytes of all tokens of a prompt → its first page, in
//	       hashicorp/go-immutable-radix, one key a prompt
package baselines
