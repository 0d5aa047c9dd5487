package windows

// The eviction policies.
const (
	// PriorityLRU evicts the lowest priority first, among equals the least recently used,
	// among these the deepest in its prefix.
	PriorityLRU = "priority_lru"
	// Forecast predicts, among pages of the lowest priority, when each will be used again, and
	// evicts the one that is worth least to keep.
	Forecast = "forecast"

	// The others are known from papers, and are there to compare with. See package evict.

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

// EvictionPolicies lists the policies that Config.EvictionPolicy may name.
func EvictionPolicies() []string {
	return []string{PriorityLRU, Forecast, ARC, S3FIFO, WTinyLFU, GDSFDepth, SupersededLRU}
}
