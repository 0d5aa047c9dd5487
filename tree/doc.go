// Package tree is the radix tree of the cache: it knows which blocks are stored, where each pool
// keeps them, and finds the longest prefix of a prompt that can be reused. It is a core: one
// goroutine, no clock, no lock, no knowledge of pages beyond their numbers. It fills in the records
// of package internal/protocol in place, and answers what the pools and the offloader must do to
// follow. Package windows tells it which blocks a position attends to.
//
// # What a block is
//
// A block is a record in an array; its index is its id. Its tokens are in another array, in the
// same order, and for each pool an array says where the pool keeps each block. No pointers link
// blocks, so the garbage collector has nothing to follow, and a block that takes the place of an
// old one allocates nothing.
//
// There is one root for each namespace and kind of pool. Each block knows the block before it and
// the blocks that follow it:
//
//	root ── b0 ── b1 ──┬── b2 ── b3        b6 is stored in part
//	                   ├── b4 ── b5 ── b6
//	                   └── b7
//
// If other blocks follow a block that no pool holds, it is a ghost: the tree keeps only its tokens
// and its id.
//
// The blocks that follow one block are siblings: a treap, ordered by their tokens. Each sibling
// knows the latest stamp in its subtree among the blocks that every pool holds (candidates for
// partial reuse) and among those that some pool holds (for the reach). Siblings that begin with the
// same tokens are a range, so finding the best partial match among 100,000 takes some microseconds.
//
// # How the package is built
//
// A Tree is layers and, on top of them, one type for each kind of request:
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
// Small parts don't know the tree at all: numbers, symbols, timers, retentionCover. A layer changes
// only its own fields, and is called by the layers above.
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
// If a block that every pool has is offered again, it isn't stored again and keeps its stamp.
//
// # Self pools and cross pools
//
// An encoder–decoder model has two kinds of pools. Pages of its self pools are matched by the
// decoder's tokens, pages of its cross pools by the input of the encoder. A prefix is of one kind,
// and the two share nothing: each namespace has a root for each kind, a block has pages only in
// pools of its own kind, and in a match, a source and a candidate "every pool" means every pool of
// that kind. A tree without cross pools has one root for each namespace, and pays nothing for the
// distinction.
//
// So one sequence has two prefixes, matched by two items of one Match, claimed
// and stored by two items of one Apply:
//
//	decoder   Cross false   Namespace with the key   the prompt
//	encoder   Cross true    Namespace with the key   the input, padded to whole blocks
//
// The key of the input is Namespace.Encoder of both, since the decoder's keys and
// values depend on the input too. As the key names the whole input, the namespace
// has one prefix for cross pools. An encoder's item has Limit len(Tokens), since
// nothing need be computed again, Partial false and no items; its Prompt is the
// length without the padding. Both items of a store may have all tables of the
// sequence: an item reads those of its own kind. IDs, pages, cursors and claims
// are used as they are, and so are moves, takeovers and Locate, which name blocks.
// A session or a salt selects blocks of both kinds, a prefix those of Forget.Cross.
// Events and Contents tell of an input's tokens without the padding.
//
// # State pools
//
// Models with recurrent layers have state pools beside the attention pools. The page of a block
// there is its checkpoint: the states after the last token of the block. A match then ends at a
// block, whole or stored in part, that has a checkpoint in every state pool, and also says what the
// attention pools alone would have given. States aren't offered with the tokens: a release gives
// its working pages to the tree (StoreItem.HandOver), and a commit asks which block its tokens end
// (FindEnd), copies its working page and hands the copy over. "Every pool" of a candidate means
// every attention pool. See states.go. With Config.Follow, when a checkpoint comes to the device
// the tree says which checkpoints are its neighbours, for policies that value it by what it saves.
// See follow.go.
//
// A tree with only state pools stores a block with its first checkpoint, so all blocks between
// checkpoints are ghosts. What attention would have given is then how far the tree knows the
// prompt: the blocks that lead to a checkpoint of any prompt.
//
// # Symbols
//
// Tokens that a multimodal item covers are replaced by negative numbers, one for each (item hash,
// position in the item, token id), so nothing else in the tree knows about items. A sequence holds
// its symbols from the match to the Apply that releases them; a stored block holds its symbols as
// long as it is in the tree. An entry of the table is freed with its last holder.
//
// # Changes
//
// With events or a store, the tree records its changes to blocks and to where pools hold them in a
// protocol.Changes, which TakeChanges returns: plain values, with a copy of the tokens of new
// blocks. The event log makes names and events from them, and the store's actor makes keys; the
// tree knows none of these. The record comes back by ReturnChanges and is filled again.
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
// match allocates nothing, nor does a store into places that evicted blocks have left. In the tree
// alone a block of 16 tokens costs 156 bytes with its tokens and one pool (TestMemoryOfABlock): 4
// more for each further pool, and 28 once its priority has an end. Ghosts are bounded by the number
// of pages times the blocks of the longest prompt.
package tree
