// Package sequence keeps the running sequences of an engine: their tokens, their page tables in
// every pool, and how many of their blocks others may also hold. It is a core: single-threaded,
// deterministic, and it sends no messages. The coordinator decides what happens to a sequence; this
// package makes the change and checks the relations between the parts of a sequence.
//
//	tokens    ├─────────── prompt ───────────┤── generated ──┤
//	computed  ├──────────────────────────────────────┤  their KV is in the pages
//	pages     SS······├──────────────────────────────────────┤  of a limited pool
//	          │       └ windowStart: blocks before it have left the window
//	          └ the sink, which never leaves it
//
//	reusedBlocks    ├─────┤            reused whole from the cache at admission
//	retainedBlocks  ├──────────┤       have had this request's retention
//	sharedBlocks    ├───────────────┤  others may hold these blocks, too
//
// All three count leading blocks. Before a page below sharedBlocks is written, the coordinator asks
// its pool, and the page is copied if another sequence, a pin or the tree holds it. From
// sharedBlocks on the sequence is the only holder, so no pool is asked.
//
// # Tables
//
// A table has one entry for each block: the page, or NoPage when the block has left the window of a
// limited pool. Every page in it is one reference in the pool. Each beam has its own table; but
// while a prompt is computed in chunks, its beams share one table, and Beams says how many
// there will be.
//
// # Chunks and reserves
//
// In limited pools, a prompt computed in chunks holds pages only for its window and one chunk. So
// that no later chunk can fail, the admission reserves what the rest may need. Until the prompt is
// computed, the reserve covers the pages that the sequence took itself (from reusedBlocks on), so
// they don't count twice.
//
// # States
//
//	Open ──▶ being admitted ──Admit──▶ running ──▶ End
//	              │                      │  ▲
//	              └────────End           │  └ Commit, Extend, Rewind, Fork
//	                                     ▼
//	                                    lost ──▶ End
//
// A sequence is lost when an actor fails while changing it and nothing proves what its pages hold.
// Only MarkLost makes it lost. It keeps its pages until its host releases it, because the host may
// have launched kernels that use them.
//
// # Handles
//
// A SequenceID names a slot of the arena and the slot's generation, so the handle of an ended
// sequence never finds the next one in its slot.
package sequence
