package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Config is what the coordinator must know of the engine.
type Config struct {
	Pools          []windows.Pool
	Counts         []windows.PageCounts
	TokensPerBlock int
	MaxSeqLen      int
	// Reuse, Partial and CopyOnPartial are enable_block_reuse,
	// enable_partial_reuse and copy_on_partial_reuse.
	Reuse, Partial, CopyOnPartial bool
	// CheckpointInterval is state_checkpoint_interval.
	CheckpointInterval int
	// Tenants are the salts with quotas; all others are protocol.OtherTenants. The
	// pools and the offloader know the quotas.
	Tenants map[string]protocol.Tenant
	// Ahead is offload_ahead.
	Ahead bool
	// PolicyLearns: the eviction policy is not priority_lru, so pools are told of requests that end.
	PolicyLearns bool
	// Weights is the epoch of the weights. The coordinator changes its own copy, by SetWeights.
	Weights string
	// EncoderMaxLen is the longest encoder input; 0: the model has no encoder.
	EncoderMaxLen int
	// Scales are those of the layers that have some, as they start.
	Scales []messages.LayerScale
	// identity is made of Weights and Scales: see identify.
	identity string
	// WaitingRoom is how many batches of admissions may wait for pages; 0: a
	// batch that finds none is refused.
	WaitingRoom int
	// RebalanceEvery, when above 0, is the number of rounds after which memory
	// may move by demand; OnRebalance is told of it before the next answer, on
	// the coordinator's goroutine.
	RebalanceEvery int
	OnRebalance    func(messages.Rebalanced)
	// OnRecovered is told of each recovery when it ends, on the coordinator's goroutine;
	// nil: no one is.
	OnRecovered func(Recovered)
	// OnThrash is told once that prompts have been computed again that the cache had a short
	// while ago, on the coordinator's goroutine; nil: no one is.
	OnThrash func(Thrash)
	// FixedPages, by PoolID, are pools whose number of device pages cannot change,
	// because the memory is the host's; nil: none.
	FixedPages []bool
	// MaxPages is how many device pages an attention pool may have (max_tokens); 0: no limit.
	MaxPages int
	// Divide splits bytes between the self pools by fractions, as the configuration does, and
	// refuses fractions that pool_fractions may not be.
	Divide func(fractions map[string]float64, bytes int64) ([]int, error)
	// Onboard is onboard_blocks: without it host memory keeps nothing, and nothing is
	// fetched into it.
	Onboard bool
	// Store is what is saved to a store; nil: there is none.
	Store *StoreConfig
	// FirstGeneration is the generation, less one, of the first sequence in each
	// slot. Engines of one process get different ones, so that the id of a sequence
	// of an engine that has ended is unknown to the next one.
	FirstGeneration uint32
}

// Recovered is what a recovery has lost and kept.
type Recovered struct {
	LostSequences int // that run, those of earlier recoveries included
	KeptPages     int // that cache blocks, on the device or in host memory
}

// ceilDiv is ⌈a / b⌉.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// blocks is the number of blocks that n tokens need.
func (c *Config) blocks(n int) int { return ceilDiv(n, c.TokensPerBlock) }

// wholeTokens is n without the tokens of a last partial block.
func (c *Config) wholeTokens(n int) int { return n / c.TokensPerBlock * c.TokensPerBlock }

// reusable is how many tokens of a prompt may be reused: one must be computed to
// have logits. The input of an encoder may be reused to its last token, since no
// logits are computed from it.
func (c *Config) reusable(prompt int) int { return prompt - 1 }

// selfPools is the number of pools whose pages are matched by the decoder's tokens.
// The pools after them are cross pools, matched by the input of the encoder.
func (c *Config) selfPools() int {
	_, self := sequence.PoolKinds(c.Pools)
	return self
}

// tokenPools is the number of pools whose pages hold blocks of the decoder's tokens. The
// self pools after them are state pools.
func (c *Config) tokenPools() int {
	tokens, _ := sequence.PoolKinds(c.Pools)
	return tokens
}

// recurrent tells whether the model has recurrent layers, and so state pools.
func (c *Config) recurrent() bool { return c.tokenPools() < c.selfPools() }

// Scaled lists the layers of pools with 8-bit elements, those of self attention first,
// then those of cross attention, ascending, each with the default scale: those whose
// scales the coordinator keeps.
func Scaled(pools []windows.Pool) []messages.LayerScale {
	var scales []messages.LayerScale
	for _, p := range pools {
		if p.DType.Bytes() != 1 {
			continue
		}
		for _, layer := range p.Layers {
			scales = append(scales, messages.LayerScale{
				Layer: layer, Cross: p.Kind == windows.KindCross, K: 1, V: 1,
			})
		}
	}
	slices.SortStableFunc(scales, func(a, b messages.LayerScale) int {
		if a.Cross != b.Cross {
			if b.Cross {
				return -1
			}
			return 1
		}
		return a.Layer - b.Layer
	})
	return scales
}

// scaleOf is the index of a layer's scale, −1 if the layer has none.
func (c *Config) scaleOf(s messages.LayerScale) int {
	return slices.IndexFunc(c.Scales,
		func(known messages.LayerScale) bool { return known.Layer == s.Layer && known.Cross == s.Cross })
}

// validateScales refuses scales of layers that have none, scales that are not
// finite and above 0, and a layer that is given twice.
func (c *Config) validateScales(scales []messages.LayerScale) *messages.Refusal {
	seen := make([]bool, len(c.Scales))
	for _, s := range scales {
		name := "layer"
		if s.Cross {
			name = "the cross attention of layer"
		}
		i := c.scaleOf(s)
		switch {
		case !validScale(s.K) || !validScale(s.V):
			return refusals.New(messages.ErrBadRequest,
				"scales %v and %v of %s %d are not finite and greater than 0", s.K, s.V, name, s.Layer)
		case i < 0:
			return refusals.New(messages.ErrNotSupported,
				"%s %d has no elements of 8 bits, so it has no scales", name, s.Layer)
		case seen[i]:
			return refusals.New(messages.ErrBadRequest, "%s %d is given twice", name, s.Layer)
		}
		seen[i] = true
	}
	return nil
}

// scaled tells whether the layers have these scales already.
func (c *Config) scaled(scales []messages.LayerScale) bool {
	return !slices.ContainsFunc(scales,
		func(s messages.LayerScale) bool { return c.Scales[c.scaleOf(s)] != s })
}

// setScales sets scales that are valid.
func (c *Config) setScales(scales []messages.LayerScale) {
	for _, s := range scales {
		c.Scales[c.scaleOf(s)] = s
	}
	c.identify()
}

// identify names what the bytes of a page depend on besides its tokens: the epoch of the weights,
// and the scales if a layer has one that is not 1.
func (c *Config) identify() {
	c.identity = c.Weights
	h := sha256.New()
	for _, s := range c.Scales {
		fmt.Fprintln(h, s.Layer, s.Cross, math.Float32bits(s.K), math.Float32bits(s.V))
	}
	if slices.ContainsFunc(c.Scales, func(s messages.LayerScale) bool {
		return s.K != 1 || s.V != 1
	}) {
		c.identity += " scales " + hex.EncodeToString(h.Sum(nil)[:16])
	}
}

// validScale is false for NaN too, which is not greater than anything.
func validScale(x float32) bool { return x > 0 && !math.IsInf(float64(x), 1) }
