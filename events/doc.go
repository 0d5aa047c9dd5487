// Package events tells others what the cache holds: a router that sends each prompt to the engine
// that has its prefix, an index over many engines, a test.
//
// # The log
//
// The engine's Log makes events from the tree's changes and keeps them until its readers have taken
// them. All readers share one buffer, and each has its own position in it:
//
//	ids        0    1    2    3    4    5    6    7 │ 8 next
//	                          └───────── kept ─────┘
//	reader 0   has had all up to 5: takes 6, 7
//	reader 1   has had 0, 1: takes 3 … 7, and has lost 2
//
// An event is dropped when every reader has taken it. The buffer is bounded: when it is full the
// oldest event is dropped, even if some reader hasn't taken it. So a slow reader doesn't hold up
// the engine, and costs other readers nothing. It is told how many events it has lost; it can't
// know what they were, so it asks for a snapshot and goes on from there. A batch carries the
// engine's id, so a reader of several engines knows whose events it has, and notices when ids start
// from 0 again.
//
// A Mirror is such a reader. It follows the batches and holds exactly the keys of the cache: which
// block, in which pool, in which tier, at which priority. A key has one tier per pool, the best
// one; a clean copy in host memory has no event. An event that contradicts what the mirror knows is
// an error, so a test that follows the engine with a mirror checks every event, too.
//
// # Names
//
// An event names a block by a hash: the first half of a SHA-256 of the previous block's hash and
// the block's tokens, four bytes each, little-endian. For the first block, the namespace's hash
// takes the place of the previous one. So equal prompts with two salts have no name in common, and
// names are the same in every run.
//
// The log has a record of each block in the tree: its name, its tokens, and the block before it.
// The tree passes plain values, protocol.Changes, which no one changes from then on. A kept event
// has the hashes of its blocks, and refers to the tokens in the records; Take copies both into a
// batch:
//
//	tree ── Changes ──▶ Log ── Take ──▶ batch ──▶ reader
//
// So a router can tell how much of a prompt an engine has: Names makes the names of the prompt's
// blocks, and Mirror.Match counts how many of them every pool has where its window needs them. The
// names can't be looked up in stored events, because these don't say which namespace they belong
// to.
//
// # Absent readers
//
// A reader that is behind by more than four buffers, and by more than 65,536 events, is absent.
// When all readers are absent, the log forgets the events it has kept and the tokens of the tree,
// and only counts events. A reader that comes back is told how many events it has lost, as
// usual. When a reader takes a snapshot, which has all blocks of the tree, the log starts to keep
// events again. A reader opened meanwhile gets events from the next snapshot on, its own or another
// reader's.
//
// # Failures
//
// A log that failed in the middle of a change isn't trusted: Resume makes a new one that goes on
// with its ids and readers but knows no blocks. It only counts events, as for absent readers, until
// a reader asks for a snapshot. Every reader asks for one, because every reader has lost something.
//
// # Costs
//
// Append hashes the blocks that enter the tree, about 0.12 µs for 16 tokens, and allocates their
// records; their tokens are those of the tree's record. A kept event costs 80 bytes for each block
// it stores and 16 for each it removes. Besides the buffer, the log takes 100 bytes for each block
// in the tree and 4 for each of its tokens, 52 in a block with tokens of a multimodal item; up to
// twice as much for tokens where one call stores several runs of blocks. With a limit of 0 all of
// this is off.
//
// # Invariants
//
// Check verifies them.
//
//  1. At most limit events are kept, with consecutive ids up to the next one.
//  2. Some reader has not taken the oldest event that is kept.
//  3. A block in the tree follows one that is there, or begins a prefix.
//
// Log and Mirror are single-threaded and deterministic; the caller keeps each to one goroutine, by
// an actor or a lock.
package events
