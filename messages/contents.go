package messages

// Content is one block of the tree. Blocks that no pool holds but that others
// stand behind are among them.
type Content struct {
	Parent    int // index of the block before in Contents.Blocks; −1: none
	Namespace Namespace
	Depth     int        // index in the prefix
	Cross     bool       // of the encoder's input, in cross pools; else of the decoder's tokens
	Tokens    []Token    // as the host passed them; fewer than a block's if stored in part
	Covers    []Cover    // by token, of multimodal items; nil if none covers the block
	Pages     []Location // by PoolID
}

// Cover says which item covers a token; the zero Cover is none.
type Cover struct {
	Covered  bool
	Hash     [32]byte
	Position int // of the token in the item
}
