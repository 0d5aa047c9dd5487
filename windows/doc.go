// Package windows describes the geometry of a model's cache: which layers form a pool, which blocks
// a token attends to, which blocks have left a window, how many bytes a page has, where each row
// lies in it, and how memory is split between pools. It keeps no state.
//
// # A worked model
//
// Take four layers with two KV heads of 8 float16 elements, windows of 4096 and 8 in turn,
// sequences of at most 4096 tokens, and blocks of 4 tokens. A window that no sequence outgrows is
// full attention, so there are two pools, in this order:
//
//	w8h2     layers 1, 3   page 2 layers × K,V × 2 heads × 4 tokens × 8 × 2 B = 512 B
//	wfullh2  layers 0, 2   the same here
//
// A sequence with 18 computed tokens has five blocks. In w8h2 the next token, at position 18,
// attends to itself and to the seven before it, [11, 18):
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
// Block 2 holds tokens 8 to 11 and is kept only for token 11: a window that doesn't begin at a
// block boundary touches one block more than ⌈w/tpb⌉, where tpb is the number of tokens in a block.
// One token later, at position 19, the window begins at token 12 and block 2 has left it.
//
// With sink_token_length 3 the first three tokens never leave a limited window:
// block 0 stays in the page table of w8h2 and every match needs it, [0 -1 2 3 4].
//
// # Kinds of layers
//
//	full attention      wfullh8    all blocks
//	window of w tokens  w1024h8    the blocks of the last w tokens, and of the sink
//	chunks of c tokens  c8192h8    the blocks of the token's own chunk, [⌊p/c⌋·c, p)
//	recurrent           state      the state at this very position
//	cross attention     cross_h8   all blocks of the encoder's tokens
//
// Keys and values may have different sizes. A layer may keep one latent vector for both (KVFactor
// 1). A layer that reads another layer's keys and values has no pages (Model.SharedKV). Side bytes,
// such as the keys of a sparse attention's indexer, lie in the same page. Layers that agree in all
// of this form one pool.
//
// # Who asks
//
// Reach, and the methods of Pool that use it, say which blocks a position needs:
//
//	Needs, FirstNeeded   a match at a position; how far a sequence can be rewound
//	FirstKept            what a sequence drops after a commit
//	SinkBlocks           which leading blocks are needed always
//	PrefillReserve       what a prefill in chunks keeps in a limited pool
//	Need, Split, Divide  how many pages a pool gets, at start and at a rebalance
//	PageBytes, Regions   how much is copied, whole and in part
//	View                 where the host's kernels find a layer
//
// The tree, the coordinator and the events mirror call them.
//
// # Memory
//
// Each pool gets bytes in proportion to what it needs for a sequence of the expected length, so
// that all pools run out together. At 4096 tokens wfullh2 above needs 1024 pages and w8h2 needs 3,
// so 10 270 pages of memory become 10 240 and 30. All arithmetic is in 64-bit integers with 128-bit
// products: the same configuration gives the same pages everywhere, and numbers that overflow are
// refused.
//
// Sequences that are shorter than expected can't use all pages of full attention: each takes 3
// pages of w8h2, whatever its length, so 30 pages serve ten sequences. So set expected_seq_len,
// whose default is the longest sequence, to the length of most sequences. Warnings reports a split
// that holds few sequences, FitOf counts them, and Fractions returns pool_fractions for sequences
// of several lengths. ForMixedLengths sets pool_fractions for long and short sequences in a
// configuration that has neither option.
//
// A state pool needs two pages a sequence, the working page and a checkpoint, or one without reuse.
// max_tokens does not cap it.
//
// # Encoders
//
// The decoder of an encoder–decoder model attends to its own tokens and, in its cross attention, to
// the encoder's output. If Model.CrossLayers is set, the model has one more pool, after all others:
// CrossPool. Its pages hold the cross attention's keys and values of a block of encoder tokens. A
// sequence needs all of them from the first decoder token on, and never more:
//
//	                 prompt        + 3 tokens       + 3 tokens
//	wfullh2   [0 1 2]        [0 1 2 3]        [0 1 2 3]
//	cross_h2  [0 1 2 3 4]    [0 1 2 3 4]      [0 1 2 3 4]
//
// So a sequence's length says nothing about its need of cross pages. The cross pool gets the part
// cross_kv_cache_fraction of device and host memory (SplitCross), and Split divides the rest.
//
// # Elements
//
// Pages hold float32, float16, bfloat16, fp8, int8 or nvfp4. The 8-bit types need a scale for keys
// and one for values in each layer, which the engine keeps for the host, outside the pages. nvfp4
// has a scale for every 16 elements, in the page.
package windows
