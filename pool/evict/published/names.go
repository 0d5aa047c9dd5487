package published

import "github.com/kvactor/kvactor/pool/evict"

// The policies.
const (
	// ARC balances blocks used once and blocks used more often.
	ARC = "arc"
	// S3FIFO keeps blocks that are used again soon after they came.
	S3FIFO = "s3_fifo"
	// WTinyLFU keeps blocks that are used more often than those that they would replace.
	WTinyLFU = "w_tinylfu"
	// GDSFDepth keeps blocks by their uses and the time that computing them takes.
	GDSFDepth = "gdsf_depth"
	// SupersededLRU is LRU, but the rest of a run that a prompt has left goes first.
	SupersededLRU = "superseded_lru"
)

func init() {
	evict.Register(ARC, newARC)
	evict.Register(S3FIFO, newS3FIFO)
	evict.Register(WTinyLFU, newTinyLFU)
	evict.Register(GDSFDepth, newGDSF)
	evict.Register(SupersededLRU, newSuperseded)
}
