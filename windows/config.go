package windows

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// Config is the cache configuration, by the names and with the defaults of
// TensorRT-LLM's KvCacheConfig. Start from DefaultConfig: the zero value is not
// valid. Package kvconfig reads it from JSON and YAML.
type Config struct {
	TokensPerBlock       int     // a power of two greater than 1
	MaxAttentionWindow   []int   // tokens, repeated over the layers; nil: all layers full
	SinkTokenLength      int     // leading tokens that never leave a limited window
	DType                string  // AutoDType, or one for all layers
	CrossKVCacheFraction float64 // of the cache's memory, for the cross pool: encoder–decoder models only

	FreeGPUMemoryFraction float64            // of the free device memory, in (0,1)
	MaxTokens             int                // caps the pages of each pool; 0: no cap
	HostCacheSize         int64              // bytes of host memory; 0: no offloading
	ExpectedSeqLen        int                // tokens that the memory split assumes; 0: MaxSeqLen
	PoolFractions         map[string]float64 // by pool name, all pools; nil: by need

	EnableBlockReuse   bool // false: nothing is stored or matched
	EnablePartialReuse bool // false: only whole blocks are
	CopyOnPartialReuse bool // false: a partly matching block is taken over or left

	OnboardBlocks               bool // false: host contents are not brought back
	SecondaryOffloadMinPriority int  // contents below it are dropped, not offloaded
	OffloadAhead                bool // copy pages near eviction before they are needed

	SaltQuotas      map[string]float64 // by salt, in (0,1]: its share of each tier of each pool; nil: none
	OtherSaltsQuota float64            // that of all other salts and of requests without one, together; 0: none, so they are never over it and SaltQuotas protect from nobody

	EventBufferMaxSize int    // events kept for a slow reader; 0: no events
	EvictionPolicy     string // PriorityLRU
	UseUVM             bool   // deprecated: refused
	TransferMode       string // deprecated: refused unless empty
}

// PriorityLRU is the eviction policy: lowest priority, then least recently
// used, then deepest.
const PriorityLRU = "priority_lru"

// DefaultConfig is what a host gets that says nothing.
func DefaultConfig() Config {
	return Config{
		TokensPerBlock:              32,
		DType:                       AutoDType,
		FreeGPUMemoryFraction:       0.9,
		SecondaryOffloadMinPriority: int(messages.DefaultPriority),
		OnboardBlocks:               true,
		EnableBlockReuse:            true,
		EnablePartialReuse:          true,
		CopyOnPartialReuse:          true,
		EvictionPolicy:              PriorityLRU,
		OffloadAhead:                true,
	}
}

// Validate refuses, as ConfigInvalid, a configuration or a model with wrong
// values: every problem at once, one sentence each, separated by semicolons.
func (c Config) Validate(m Model) error {
	ps := slices.Concat(c.deprecated(), m.problems(), c.shapeProblems(), c.memoryProblems(), c.crossProblems(m), c.policyProblems(), c.quotaProblems())
	if len(ps) == 0 {
		// Only a sound model has pools; what they make of the rest comes last.
		ps = c.poolProblems(m)
	} else {
		ps = append(ps, fractionProblems(c.PoolFractions)...)
	}
	return refuse(ps)
}

// Join makes one ConfigInvalid refusal of several, nil of none: a host that has
// read a configuration and validated it reports everything together.
func Join(errs ...error) error {
	var ps []string
	for _, err := range errs {
		if err != nil {
			ps = append(ps, err.Error())
		}
	}
	return refuse(ps)
}

func refuse(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return messages.Refuse(messages.ConfigInvalid, "%s", strings.Join(problems, "; "))
}

func (c Config) deprecated() []string {
	var ps []string
	if c.UseUVM {
		ps = append(ps, "use_uvm is deprecated")
	}
	if c.TransferMode != "" {
		ps = append(ps, "transfer_mode is deprecated")
	}
	return ps
}

// shapeProblems lists what is wrong with blocks, windows and element type.
func (c Config) shapeProblems() []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	if t := c.TokensPerBlock; t < 2 || t&(t-1) != 0 {
		say("tokens_per_block %d is not a power of two greater than 1", t)
	}
	if c.MaxAttentionWindow != nil && len(c.MaxAttentionWindow) == 0 {
		say("max_attention_window is an empty list")
	}
	for _, w := range c.MaxAttentionWindow {
		if w < 2 {
			say("max_attention_window %d is not 2 or more", w)
		}
	}
	if c.SinkTokenLength < 0 {
		say("sink_token_length %d is negative", c.SinkTokenLength)
	}
	if c.DType != AutoDType && !DType(c.DType).Known() {
		say("dtype %q is not one of auto, float32, float16, bfloat16, fp8, int8", c.DType)
	}
	return ps
}

// memoryProblems lists what is wrong with sizes.
func (c Config) memoryProblems() []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	// Negated, so that NaN is refused as well.
	if f := c.FreeGPUMemoryFraction; !(f > 0 && f < 1) {
		say("free_gpu_memory_fraction %v is not greater than 0 and less than 1", f)
	}
	if c.MaxTokens < 0 {
		say("max_tokens %d is not 1 or more", c.MaxTokens)
	}
	if c.HostCacheSize < 0 {
		say("host_cache_size %d is negative", c.HostCacheSize)
	}
	if c.ExpectedSeqLen < 0 {
		say("expected_seq_len %d is not 1 or more", c.ExpectedSeqLen)
	}
	return ps
}

// policyProblems lists what is wrong with priorities, events and eviction.
func (c Config) policyProblems() []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	if p := c.SecondaryOffloadMinPriority; p < int(messages.MinPriority) || p > int(messages.MaxPriority) {
		say("secondary_offload_min_priority %d is not between %d and %d", p, messages.MinPriority, messages.MaxPriority)
	}
	if c.EventBufferMaxSize < 0 {
		say("event_buffer_max_size %d is negative", c.EventBufferMaxSize)
	}
	if c.EvictionPolicy != PriorityLRU {
		say("eviction_policy %q is not known; there is %s", c.EvictionPolicy, PriorityLRU)
	}
	return ps
}

// poolProblems lists what is wrong between the configuration and the pools of a
// model when both are sound by themselves.
func (c Config) poolProblems(m Model) []string {
	var ps []string
	if c.ExpectedSeqLen > m.MaxSeqLen {
		ps = append(ps, fmt.Sprintf("expected_seq_len %d is more than max_seq_len %d", c.ExpectedSeqLen, m.MaxSeqLen))
	}
	pools := group(m, c)
	ps = append(ps, sizeProblems(pools, c.expected(m))...)
	if m.Encodes() {
		ps = append(ps, sizeProblems([]Pool{c.crossPool(m, 0)}, m.EncoderMaxLen)...)
	}
	if c.PoolFractions != nil {
		ps = append(ps, namingProblems(pools, c.PoolFractions)...)
	}
	return append(ps, fractionProblems(c.PoolFractions)...)
}

// fractionTolerance is how far from 1 the sum of the pool fractions may be.
const fractionTolerance = 1e-6

// fractionProblems checks the values of pool_fractions, which need no pools.
func fractionProblems(fractions map[string]float64) []string {
	if fractions == nil {
		return nil
	}
	var ps []string
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(fractions)) {
		f := fractions[name]
		sum += f
		if !(f > 0 && f <= 1) {
			ps = append(ps, fmt.Sprintf("pool_fractions of %s: %v is not greater than 0 and at most 1", name, f))
		}
	}
	if len(ps) == 0 && !(math.Abs(sum-1) <= fractionTolerance) {
		ps = append(ps, fmt.Sprintf("pool_fractions sum to %v, not 1", sum))
	}
	return ps
}

// namingProblems checks that fractions name exactly the pools.
func namingProblems(pools []Pool, fractions map[string]float64) []string {
	var ps []string
	known := make(map[string]bool, len(pools))
	for _, p := range pools {
		known[p.Name] = true
		if _, ok := fractions[p.Name]; !ok {
			ps = append(ps, fmt.Sprintf("pool_fractions lacks pool %s", p.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fractions)) {
		if !known[name] {
			ps = append(ps, fmt.Sprintf("pool_fractions names %q, which is no pool", name))
		}
	}
	return ps
}
