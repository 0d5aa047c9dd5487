// Package events tells others what the cache holds: a router that sends a prompt to the engine with
// its prefix, an index over many engines, a test.
//
// # The log
//
// The engine's Log makes events from the tree's changes and keeps them until its readers have taken
// them. All readers share one buffer, and each has its own place in it:
//
//	ids        0    1    2    3    4    5    6    7 │ 8 next
//	                          └───────── kept ─────┘
//	reader 0   has had all up to 5: takes 6, 7
//	reader 1   has had 0, 1: takes 3 … 7, and has lost 2
//
// The buffer is bounded. When it is full the oldest event goes, even if some reader hasn't taken
// it. So a slow reader doesn't hold up the engine, costs other readers nothing, and is told how
// many events it has lost. It can't know what they were, so it asks for a snapshot and goes on from
// there. An event goes earlier if every reader has had it. A batch carries the engine's id, so a
// reader of several engines knows whose events it has, and notices when ids start from 0 again.
//
// A Mirror is such a reader. It follows the batches and holds exactly the keys of the cache: which
// block, in which pool, in which tier, at which priority. A key has one tier per pool, the best
// one; a clean copy in host memory has no event. An event that contradicts what the mirror knows is
// an error, so a test that follows the engine with a mirror checks every event.
//
// # Names
//
// An event names a block by a hash: the first half of a SHA-256 of the previous block's hash and
// the block's tokens, four bytes each, little-endian. The first block follows the namespace's hash.
// So equal prompts with two salts have no name in common, and an engine's names are the same in
// every run.
//
// The log has a record of each block in the tree: its name, a copy of its tokens, and the block
// before. The tree passes plain values, protocol.Changes, and shares nothing with the log. An
// event that is kept has the hashes of its blocks, and their tokens from the records; Take
// copies both into a batch:
//
//	tree ── Changes ──▶ Log ── Take ──▶ batch ──▶ reader
//
// So a router can tell how much of a prompt an engine has: Names makes the names of its blocks, and
// Mirror.Match counts how many of them every pool has where its window needs them. Names are
// computed for each prompt, not looked up in stored events, which don't say which namespace they
// belong to.
//
// # Absent readers
//
// A reader that is behind by more than four buffers, and by more than 65,536 events, is absent.
// When all readers are absent, the log forgets the events it has kept and its copy of the tree's
// tokens, and only counts events. A reader that comes back is told how many events it has lost, as
// usual. When it takes a snapshot, which has all blocks of the tree, the log starts to keep events
// again. A reader opened meanwhile gets events from the next snapshot on, its own or another
// reader's.
//
// # Failures
//
// A log that failed in the middle of a change isn't trusted: Resume makes a new one that goes on
// with its ids and readers but knows no blocks. It counts new events as lost, as for absent
// readers, until a reader asks for a snapshot, which has all blocks of the tree. Every reader asks
// for one, because every reader has lost something.
//
// # Costs
//
// Append hashes the blocks that enter the tree, about 0.12 µs for 16 tokens, and allocates their
// records and tokens. A kept event costs 80 bytes for each block it stores and 16 for each it
// removes. Besides the buffer, the log takes 100 bytes for each block in the tree and 4 for each of
// its tokens, and 40 more for a multimodal item's. With a limit of 0 all of this is off.
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
