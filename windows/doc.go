// Package windows is the geometry of a model's cache: which layers form a pool,
// which blocks a token attends to, which have slid out of the window, how many
// bytes a page has, and how memory is split between pools. It holds no state.
//
// # A worked model
//
// Four layers with two KV heads of 8 float16 elements; windows 4096 and 8 in
// turn, sequences of at most 4096 tokens, blocks of 4 tokens. A window that no
// sequence outgrows is full attention, so there are two pools, in this order:
//
//	w8h2     layers 1, 3   page 2 layers × K,V × 2 heads × 4 tokens × 8 × 2 B = 512 B
//	wfullh2  layers 0, 2   the same here
//
// A sequence with 18 computed tokens has five blocks. The next token, at
// position 18, attends in w8h2 to itself and the seven before it, [11, 18):
//
//	token    0   2   4   6   8  10  12  14  16  18
//	         ├───┴───┼───┴───┼───┴───┼───┴───┼───┴───┤
//	block    0       1       2       3       4
//	wfullh2  ●───────●───────●───────●───────●            FirstNeeded(18) = 0
//	w8h2     ·       ·       ╶──●────●───────●            FirstNeeded(18) = 2
//
//	page table   wfullh2  [ 0  1  2  3  4]
//	             w8h2     [-1 -1  2  3  4]
//
// Block 2 holds tokens 8 to 11 and is kept for token 11 alone: a window that
// does not begin at a block boundary touches one block more than ⌈w/tpb⌉. With
// one more token, at position 19, the window begins at token 12 and block 2 has
// left it.
//
// With sink_token_length 3 the first three tokens never leave a limited window:
// block 0 stays in the page table of w8h2 and every match needs it, [0 -1 2 3 4].
//
// # The questions, and who asks
//
//	Needs, FirstNeeded   the tree, for a match at a position; a rewind
//	FirstKept            the coordinator, after a commit: what to drop
//	SinkBlocks           both: these blocks are needed always
//	Need, Split, Divide  the coordinator, at start and at a rebalance
//	PageBytes            the device and the offloader
//
// # Memory
//
// Bytes are shared in proportion to what each pool needs for a sequence of the
// expected length, so that all pools run out together. At 4096 tokens wfullh2
// above needs 1024 pages and w8h2 needs 3, and 10 270 pages of memory become
// 10 240 and 30. All of it is integer arithmetic of 64 bits and products of 128:
// the same configuration gives the same pages everywhere, and absurd numbers are
// refused before anything is made of them.
//
// # Encoders
//
// The decoder of an encoder–decoder model attends to its own tokens and, in its
// cross attention, to the encoder's output. Model.CrossLayers makes the model
// one: CrossPool is then one pool more, behind all others, whose pages hold the
// cross attention's keys and values of a block of encoder tokens. A sequence
// needs all its pages from the first decoder token on and never more:
//
//	                 prompt        + 3 tokens       + 3 tokens
//	wfullh2   [0 1 2]        [0 1 2 3]        [0 1 2 3]
//	cross_h2  [0 1 2 3 4]    [0 1 2 3 4]      [0 1 2 3 4]
//
// So there is no need of one sequence by which memory could be shared with the
// others: cross_kv_cache_fraction says what part of device and host memory the
// cross pool gets (SplitCross); Split divides the rest.
//
// # Elements
//
// Pages hold float32, float16, bfloat16, fp8 or int8. The 8-bit types need a
// scale for keys and one for values in each layer; they are not in the pages,
// the engine keeps them for the host.
package windows
