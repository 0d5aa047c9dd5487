// Package events lets others know what the cache holds: a router that sends a
// prompt to where its prefix is, an index over many engines, a test.
//
// The engine's Log keeps what happened since its reader asked last:
//
//	ids     0    1    2    3    4    5    6    7 │ 8 next
//	        └── taken ──┘    └ lost ┘    └ kept ─┘
//
// It is bounded. When it is full, the oldest event goes and is counted, so a
// slow reader does not hold the engine up and is told how much it has missed. What
// it missed it cannot guess; it asks for a snapshot and goes on from there.
//
// A Mirror is such a reader. It follows the batches and holds exactly the keys
// of the cache: which block, in which pool, in which tier, at which priority. A
// key has one tier per pool, the best one; a clean copy in host memory is not
// told. The mirror is strict: an event that contradicts what it knows is an
// error, so a test that follows the engine with a mirror checks every event.
//
// # Names
//
// A hash of every block would cost more than all else that storing it does, so
// events come to the log without. They say which blocks of which
// protocol.Naming they are about, and Name makes the hashes of what a reader
// takes: beside the engine, once for each block, and also for blocks that have
// gone since, whose ancestors have gone, or whose stored event was lost.
//
//	tree ── events with namings ──▶ Log ── Take ──▶ Name ──▶ reader
//	                                 └── lost: owed, named by Settle if too many,
//	                                     free once Gone and spoken of no more
//
// What that needs are the tokens of unnamed blocks, once more than the tree has
// them. They are kept for the events that the log keeps and, of lost ones, for at
// most 1024 blocks for each event that it may keep. Beyond that the oldest that are
// still stored are named where events are published. The tokens of blocks that
// have gone from the tree come back unhashed when no kept event speaks of them, or
// of any behind them: so storing costs no new memory when nobody reads.
//
// A hash is the first half of a SHA-256 of the hash before it and the block's
// tokens, four bytes each, little-endian; before the first block stands that of
// the namespace. So equal prompts of two salts have no name in common, and an
// engine's names are the same in every run.
//
// So a router that has a prompt can say how much of it an engine has: Names makes
// the names of its blocks, Mirror.Match finds how many of them every pool has
// where its window needs them. Names are made anew for each prompt, not looked
// for in stored events, which do not tell of which namespace they are.
//
// # Two trees
//
// The two sides of an encoder–decoder model tell one log (NewShared), each of its
// own pools. cleared is told once, when nothing is left on either side, and a tree
// that has lost everything leaves a gap in the ids for both.
//
// Like every core, both are single-threaded and deterministic; an actor or a
// lock of the caller keeps them to one goroutine. An event is handed on, never
// copied in depth: what it points to is the log's after Append and the reader's
// after Take. With a limit of 0 everything costs nothing.
package events
