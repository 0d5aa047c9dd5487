package messages

// Content is one stored block, as ReadContents lists it. The list includes blocks that
// no pool holds any more but that stored blocks follow.
type Content struct {
	Parent    int // index of the block before in Contents.Blocks; −1: none
	Namespace Namespace
	Depth     int        // index of the block in its prefix
	Cross     bool       // of the encoder's input, in cross pools; else of the decoder's tokens
	Tokens    []Token    // as the host passed them; fewer than a block's if stored in part
	Covers    []Cover    // by token, the multimodal item that covers it; nil if none covers the block
	Pages     []Location // by PoolID, where each pool keeps the block
}

// Cover says which multimodal item covers a token. The zero Cover is none.
type Cover struct {
	Covered  bool
	Hash     [32]byte
	Position int // of the token in the item
}
