package oracle

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// PoolConfig is one pool: the layers that share window and KV heads, or the
// recurrent layers.
type PoolConfig struct {
	Name      string
	State     bool // pages hold recurrent states; Window and KVHeads are 0
	Window    int  // tokens; 0: full attention
	Sink      int  // leading tokens that never leave a limited window
	KVHeads   int
	Layers    []int
	PageBytes int64
	Primary   int // device pages
	Secondary int // host pages
}

// Config is what the model needs to know; there are no defaults.
type Config struct {
	TokensPerBlock              int
	MaxSeqLen                   int
	Pools                       []PoolConfig // ascending window, full attention, states
	SecondaryOffloadMinPriority int
	OnboardBlocks               bool
	BlockReuse                  bool
	PartialReuse                bool
	CopyOnPartialReuse          bool
	SaltQuotas                  map[string]float64   // shares of each tier of each pool, by salt
	OtherSaltsQuota             float64              // that of all other salts together; 0: none
	CheckpointInterval          int                  // tokens between checkpoints of states; 0: none
	Store                       *StoreConfig         // nil: none
	Weights                     string               // the first epoch
	EventLimit                  int                  // events kept for the reader; 0: none
	Clock                       func() time.Duration // the only time there is
}

// StoreConfig attaches a model to a store.
type StoreConfig struct {
	Store       *Store
	Save        SavePolicy
	MinPriority messages.Priority
}
