// Package events tells others what the cache holds: a router that sends a
// prompt to where its prefix is, an index over many engines, a test.
//
// # The log
//
// The engine's Log makes events of what the tree changes and keeps them until its
// readers have taken them. All readers share one buffer, and each has a place of
// its own in it:
//
//	ids        0    1    2    3    4    5    6    7 │ 8 next
//	                          └───────── kept ─────┘
//	reader 0   has had all up to 5: takes 6, 7
//	reader 1   has had 0, 1: takes 3 … 7, and has lost 2
//
// The buffer is bounded. When it is full the oldest event goes, whoever has not
// taken it yet. So a slow reader does not hold up the engine, costs other readers
// nothing, and is told how many events it has lost. It cannot guess what they
// were; it asks for a snapshot and goes on from there. An event goes earlier if
// every reader has had it. A batch carries the id of the engine, so that a reader
// of several engines knows whose events it has, and that ids start from 0 again.
//
// A Mirror is such a reader. It follows the batches and holds exactly the keys
// of the cache: which block, in which pool, in which tier, at which priority. A
// key has one tier per pool, the best one; a clean copy in host memory has no
// event. The mirror is strict: an event that contradicts what it knows is an
// error, so a test that follows the engine with a mirror checks every event.
//
// # Names
//
// An event names a block by a hash. That is the first half of a SHA-256 of the hash
// before it and the block's tokens, four bytes each, little-endian; before the
// first block stands that of the namespace. So equal prompts of two salts have no
// name in common, and an engine's names are the same in every run.
//
// The log has a record of each block in the tree: its name, a copy of its tokens, and the block
// before. The tree passes plain values, protocol.Changes, and shares nothing with the log. An
// event that is kept has the hashes of its blocks, and their tokens from the records; Take
// copies both into a batch:
//
//	tree ── Changes ──▶ Log ── Take ──▶ batch ──▶ reader
//
// So a router that has a prompt can say how much of it an engine has: Names makes
// the names of its blocks, Mirror.Match finds how many of them every pool has where
// its window needs them. Names are made for each prompt, not looked for in stored
// events, which do not tell of which namespace they are.
//
// # Absent readers
//
// A reader that is behind by more than four buffers, and by more than 65,536 events, is absent.
// When all readers are, the log forgets what it has kept and its copy of the tokens in the tree,
// and only counts events. A reader that comes back is told how many events it has lost, as it would
// be anyway. Its snapshot, which has all blocks of the tree, makes the log one that keeps events
// again. A reader that is opened meanwhile gets events from the next snapshot on, its own or
// another reader's.
//
// # Failures
//
// A log that has failed in the middle of a change is not trusted: Resume makes one that goes on
// with its ids and readers but knows no block. It counts what happens as lost, as for absent
// readers, until one asks for a snapshot, which has all blocks of the tree. As every reader has
// lost something, every reader asks for one.
//
// # Costs
//
// Append hashes the blocks that enter the tree, some 0.12 µs for 16 tokens, and allocates their
// records and tokens. An event that is kept costs 80 bytes for each block that it stores and 16 for
// each that it removes, and memory beside the buffer is 100 bytes for each block in the tree and 4
// for each of its tokens, a multimodal item's 40 more. With a limit of 0 all of it is off.
//
// # Invariants
//
// Check verifies them.
//
//  1. At most limit events are kept, with consecutive ids up to the next one.
//  2. Some reader has not had the oldest event that is kept.
//  3. A block in the tree follows one that is there, or begins a prefix.
//
// Like every core, both are single-threaded and deterministic; an actor or a lock
// of the caller keeps them to one goroutine.
package events
