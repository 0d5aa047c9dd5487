// Package tree is the radix tree of the cache: it knows which blocks are stored, where each pool
// keeps them, and finds the longest prefix of a prompt that can be reused. It is a core: one
// goroutine, no clock, no lock, no knowledge of pages beyond their numbers. It answers in the
// records of package internal/protocol that it gets, and says what the pools and the offloader must
// do to follow its changes. Package windows tells it which blocks a position attends to.
//
// # What a block is
//
// A block is a record in an array; its index is its id. Its tokens are in another array, in the
// same order, and for each pool an array says where the pool keeps each block. Blocks have no
// pointers, so the garbage collector has nothing to follow, and a block that takes the place of an
// old one allocates nothing.
//
// There is one root for each namespace and kind of pool. Each block knows the block before it and
// the blocks that follow it:
//
//	root ── b0 ── b1 ──┬── b2 ── b3        b6 is stored in part
//	                   ├── b4 ── b5 ── b6
//	                   └── b7
//
// A block that no pool holds, but that other blocks follow, is a ghost: the tree keeps only its
// tokens and its id.
//
// The blocks that follow one block are siblings, in a treap ordered by their tokens. A stamp says
// when a block was last stored or claimed. Each sibling has the latest stamp in its subtree among
// the blocks that every pool holds (candidates for partial reuse) and among those that some pool
// holds (for the reach: how much of a prompt some pool holds). Siblings that begin with the same
// tokens are a range, so finding the best partial match among 100,000 takes some microseconds.
//
// # How the package is built
//
// A Tree has layers and, on top of them, one type for each kind of request:
//
//	Match    Apply                Forget     Contents, Snapshot, Check, String
//	  │        │                    │          walk all blocks
//	matcher  storer              forgetter     a type each, with its own scratch memory
//	  │        └────────────────────┘
//	  │      holdings     contents move and are dropped, priorities change and end
//	  │      appraiser    which pages no match can use, see worth.go
//	  │      reporter     effects for pools and offloader, changes for the event log
//	arena                 blocks, siblings, roots, symbols, sessions, timers
//	shape                 block size and kinds of pools
//
// A layer changes only its own fields, and is called by the layers above. Some small parts don't
// know the tree at all: numbers, symbols, timers, retentionCover.
//
// Read the files in this order: shape, blocks, siblings, seek; match; prefixes, store, attach; then
// whatever you need.
//
// # What a match promises
//
// A match is the longest L within the limit such that every pool holds what the token at position L
// attends to: all blocks of [0, L) in a full-attention pool, the window and the sink in a limited
// one. L ends at a block boundary or, with partial reuse, inside a block that every pool holds. If
// several blocks share the most tokens, the one last stored or claimed is taken. A match changes
// only the table of symbols.
//
// A block that every pool has isn't stored again when it is offered again, and keeps its stamp.
//
// # Self pools and cross pools
//
// An encoder–decoder model has two kinds of pools: pages of its self pools are matched by the
// decoder's tokens, pages of its cross pools by the encoder's input. A prefix is of one kind, and
// the two share nothing: each namespace has a root for each kind, a block has pages only in pools
// of its own kind, and "every pool" means every pool of that kind. A tree without cross pools has
// one root for each namespace, and pays nothing for the distinction.
//
// So a sequence has two prefixes, matched by two items of one Match, and claimed and stored by two
// items of one Apply:
//
//	decoder   Cross false   Namespace with the key   the prompt
//	encoder   Cross true    Namespace with the key   the input, padded to whole blocks
//
// Both have the key of the input as Namespace.Encoder, since the decoder's keys and values depend
// on the input, too. The key names the whole input, so its namespace has one prefix for cross
// pools. An encoder's item has Limit len(Tokens), since nothing need be computed again, Partial
// false and no multimodal items; its Prompt is the length without the padding. Both items of a
// store may have all tables of the sequence: an item reads those of its own kind. IDs, pages,
// cursors, claims, moves, takeovers and Locate work alike for both kinds. A session or a salt
// selects blocks of both kinds, a prefix those of Forget.Cross. Events and Contents have an input's
// tokens without the padding.
//
// # State pools
//
// Models with recurrent layers have state pools beside the attention pools. There, the page of a
// block is its checkpoint: the states after the last token of the block. A match then ends at a
// block, whole or stored in part, that has a checkpoint in every state pool, and also says what the
// attention pools alone would have matched. A candidate is then a block that every attention pool
// holds. States aren't offered with the tokens: a release gives its working pages to the tree
// (StoreItem.HandOver); a commit asks at which block its tokens end (FindEnd), copies its working
// page and hands over the copy. See states.go.
//
// With Config.Follow, the tree says for each checkpoint that comes to the device which checkpoints
// are its neighbours, for policies that value it by what it saves. See follow.go.
//
// A tree with only state pools stores a block with its first checkpoint, so all blocks between
// checkpoints are ghosts. What attention would have matched is then how far the tree knows the
// prompt: the blocks that lead to a checkpoint of any prompt.
//
// # Symbols
//
// The tree replaces tokens that a multimodal item covers by negative numbers, the symbols: one for
// each (item hash, position in the item, token id). So nothing else in it knows about items. A
// sequence holds its symbols from the match to the Apply that releases them; a stored block holds
// its symbols as long as it is in the tree. An entry of the table is freed with its last holder.
//
// # Changes
//
// With events or a store, the tree records its changes to blocks, and to where pools hold them, in
// a protocol.Changes, which TakeChanges returns: plain values, with a copy of the tokens of new
// blocks. From these the event log makes names and events, and the store's actor makes keys; the
// tree knows nothing of them. No one changes the record from then on, so both may keep its slices.
//
// # Invariants
//
// Check verifies them all.
//
//  1. A block that nothing follows is held by some pool.
//  2. A block stored in part has fewer tokens than a block has, and nothing follows it.
//  3. Siblings differ in their tokens; the treap is in their order.
//  4. A block's latest stamps are those of the siblings from it down.
//  5. A ghost has no priority, timer or session: they end with the block's last page.
//  6. In one pool, a device page or a host page is the place of one block.
//  7. A block has pages in pools of its root's kind only, self or cross.
//  8. Every id is that of a block below a root, or free.
//
// # Costs
//
// Matching and storing are linear in the blocks, plus a logarithm where prefixes branch. A warm
// match allocates nothing, nor does a store into places that evicted blocks have left. With events
// or a block store on, each change makes a record for those that follow it: 7 or 8 allocations. In
// the tree alone a block of 16 tokens costs 156 bytes with its tokens and one pool
// (TestMemoryOfABlock), 4 more for each further pool, and 28 more once its priority has an end.
// There are at most as many ghosts as pages times the blocks of the longest prompt.
package tree
