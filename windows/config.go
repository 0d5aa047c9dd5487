package windows

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Config is the cache configuration. Names and defaults are those of
// TensorRT-LLM's KvCacheConfig, and the name of a field in files and in errors
// is its tag. Package kvconfig reads a Config from JSON and YAML.
//
// A Config that starts from DefaultConfig means what its fields say. In any other the zero
// value of a field stands for its default, also for the flags that are on by default and for
// SecondaryOffloadMinPriority: these are switched off, or set to 0, in a DefaultConfig only.
// Engines and plans fill in the defaults; the functions of this package take a Config with
// all fields set, as WithDefaults returns it.
type Config struct {
	// TokensPerBlock is the size of a block, a power of two greater than 1.
	TokensPerBlock int `name:"tokens_per_block"`
	// MaxAttentionWindow are windows in tokens, 2 or more, repeated over the
	// layers; nil: every layer has full attention. A window of Model.MaxSeqLen or
	// more is full attention.
	MaxAttentionWindow []int `name:"max_attention_window"`
	// SinkTokenLength is how many leading tokens never leave a limited window.
	SinkTokenLength int `name:"sink_token_length"`
	// DType is the element type of all layers, or AutoDType for the model's.
	DType string `name:"dtype"`
	// MambaSSMCacheDType is the element type of recurrent states: "", "auto",
	// float16, bfloat16 or float32. The engine is given states as bytes
	// (Model.States); only a reader that computes these bytes, such as package
	// hfconfig, uses this field.
	MambaSSMCacheDType string `name:"mamba_ssm_cache_dtype"`

	// FreeGPUMemoryFraction is the part of the free device memory that the pages
	// take, greater than 0 and less than 1: the driver needs a rest. A host that
	// knows how many bytes it wants divides them with Divide and gives the engine
	// the page counts; then the fraction has no effect.
	FreeGPUMemoryFraction float64 `name:"free_gpu_memory_fraction"`
	// MaxTokens caps each attention pool at ⌈MaxTokens/TokensPerBlock⌉ device
	// pages; 0: no cap.
	MaxTokens int `name:"max_tokens"`
	// HostCacheSize is the host memory for pages on each rank, in bytes; 0: no offloading. Copies
	// ahead of demand and a store have their part of it (DivideHost).
	HostCacheSize int64 `name:"host_cache_size"`
	// CrossKVCacheFraction is the part of the cache's memory for the cross pool of
	// an encoder–decoder model, which needs it; other models must not set it.
	CrossKVCacheFraction float64 `name:"cross_kv_cache_fraction"`
	// ExpectedSeqLen is the sequence length that the memory split assumes, in
	// tokens; 0: Model.MaxSeqLen. See the section on memory in the package
	// comment: for models with limited windows it decides how many sequences fit.
	ExpectedSeqLen int `name:"expected_seq_len"`
	// PoolFractions are the parts of the memory by pool name, one for each pool,
	// each in (0,1], with sum 1; nil: by need. Fractions computes some.
	PoolFractions map[string]float64 `name:"pool_fractions"`

	// EnableBlockReuse allows storing and matching blocks.
	EnableBlockReuse bool `name:"enable_block_reuse"`
	// EnablePartialReuse allows storing and matching parts of blocks.
	EnablePartialReuse bool `name:"enable_partial_reuse"`
	// CopyOnPartialReuse allows copying a block that matches in part. Without it,
	// such a block is taken over if that is possible, or not reused.
	CopyOnPartialReuse bool `name:"copy_on_partial_reuse"`
	// StateCheckpointInterval is the distance in tokens between checkpoints of
	// recurrent states, a multiple of TokensPerBlock, in addition to those at
	// branches and at the ends of prompts; 0: only those.
	StateCheckpointInterval int `name:"state_checkpoint_interval"`

	// OnboardBlocks allows bringing contents back from host memory. Without it,
	// nothing is offloaded either.
	OnboardBlocks bool `name:"onboard_blocks"`
	// SecondaryOffloadMinPriority is the lowest priority that is offloaded, 0 to
	// 100. Contents of a lower priority are dropped when they are evicted.
	SecondaryOffloadMinPriority int `name:"secondary_offload_min_priority"`
	// OffloadAhead allows copying pages to host memory before they are evicted.
	// Evictions then rarely wait for a copy. The engine submits these copies in
	// the call that finds the link idle, so that call takes longer: in an
	// engine with host memory an admission that evicts costs several times one
	// that does not.
	OffloadAhead bool `name:"offload_ahead"`

	// SaltQuotas are the parts of each tier of each pool that a salt may use,
	// each in (0,1], by salt; nil: none.
	SaltQuotas map[string]float64 `name:"salt_quotas"`
	// OtherSaltsQuota is the common part of all other salts and of requests
	// without a salt, in (0,1]; 0: no quota. Without a quota they never exceed
	// one, so SaltQuotas alone do not protect any salt from them.
	OtherSaltsQuota float64 `name:"other_salts_quota"`

	// EventBufferMaxSize is how many events are kept for a slow reader; 0: the
	// engine makes no events.
	EventBufferMaxSize int `name:"event_buffer_max_size"`
	// EvictionPolicy is one of EvictionPolicies. A policy orders pages within a priority.
	EvictionPolicy string `name:"eviction_policy"`
	// PrefillDoublesAt is the depth in tokens at which computing a token takes twice as long
	// as at the beginning of a prompt: parameters ÷ (2 × layers × query heads × head
	// dimension), some 30,000 for a model of 8 billion parameters. With it Forecast keeps the
	// blocks that save most work instead of those that are hit most, in all pools, since a hit
	// saves the work of all layers; 0: it does not.
	PrefillDoublesAt int `name:"prefill_doubles_at"`

	UseUVM       bool   `name:"use_uvm"`       // deprecated: true is refused
	TransferMode string `name:"transfer_mode"` // deprecated: refused unless empty

	complete bool // the zero value of a field is meant, and not its default
}

// DefaultConfig returns the configuration in which every field has its default.
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
		complete:                    true,
	}
}

// WithDefaults sets the fields that are zero to their defaults, unless c started from
// DefaultConfig or has been filled in already.
func (c Config) WithDefaults() Config {
	if c.complete {
		return c
	}
	of, defaults := reflect.ValueOf(&c).Elem(), reflect.ValueOf(DefaultConfig())
	for i := range of.NumField() {
		if f := of.Field(i); f.CanSet() && f.IsZero() {
			f.Set(defaults.Field(i))
		}
	}
	c.complete = true
	return c
}

// Validate checks the configuration and the model. The error is an ErrConfigInvalid
// refusal that lists every problem, one sentence each, separated by semicolons.
// Each sentence begins with or contains the name of its field.
func (c Config) Validate(m Model) error {
	var ps problems
	c.deprecated(&ps)
	m.problems(&ps)
	c.shapeProblems(&ps)
	c.memoryProblems(&ps)
	c.crossProblems(&ps, m)
	c.policyProblems(&ps)
	c.quotaProblems(&ps)
	if len(ps) == 0 {
		// Pools can be formed only if model and configuration are valid by
		// themselves. Problems between them are therefore reported last.
		c.poolProblems(&ps, m)
	}
	fractionProblems(&ps, c.PoolFractions)
	return refuse(ps)
}

// problems are sentences on what is wrong.
type problems []string

// say adds a sentence.
func (ps *problems) say(format string, args ...any) {
	*ps = append(*ps, fmt.Sprintf(format, args...))
}

// atLeast checks a number that may not be less than 0 or 1. what is the format of the number
// with its name.
func (ps *problems) atLeast(least, n int64, what string) {
	switch {
	case n >= least:
	case least == 0:
		ps.say(what+" is negative", n)
	default:
		ps.say(what+" is not %d or more", n, least)
	}
}

// between checks a number that has two ends.
func (ps *problems) between(least, most, n int, name string) {
	if n < least || n > most {
		ps.say("%s %d is not between %d and %d", name, n, least, most)
	}
}

// part checks a part of a whole. The comparison is negated so that NaN, which compares false, is
// refused.
func (ps *problems) part(f float64, name string) {
	if !(f > 0 && f <= 1) {
		ps.say("%s %v is not greater than 0 and at most 1", name, f)
	}
}

// Join combines refusals into an ErrConfigInvalid refusal with all their sentences,
// or nil if all errors are nil. A host uses it to report the problems that a
// reader and Validate found together.
func Join(errs ...error) error {
	var ps problems
	for _, err := range errs {
		if err != nil {
			ps = append(ps, err.Error())
		}
	}
	return refuse(ps)
}

func refuse(ps problems) error {
	if len(ps) == 0 {
		return nil
	}
	return refusals.New(messages.ErrConfigInvalid, "%s", strings.Join(ps, "; "))
}

func (c Config) deprecated(ps *problems) {
	if c.UseUVM {
		ps.say("use_uvm is deprecated")
	}
	if c.TransferMode != "" {
		ps.say("transfer_mode is deprecated")
	}
}

// shapeProblems checks blocks, windows and element type.
func (c Config) shapeProblems(ps *problems) {
	if t := c.TokensPerBlock; t < 2 || t&(t-1) != 0 {
		ps.say("tokens_per_block %d is not a power of two greater than 1", t)
	}
	if c.MaxAttentionWindow != nil && len(c.MaxAttentionWindow) == 0 {
		ps.say("max_attention_window is an empty list")
	}
	for _, w := range c.MaxAttentionWindow {
		switch {
		case w == 0:
			ps.say("max_attention_window 0 is not 2 or more: for full attention it is max_seq_len")
		case w < 2:
			ps.say("max_attention_window %d is not 2 or more", w)
		}
	}
	ps.atLeast(0, int64(c.SinkTokenLength), "sink_token_length %d")
	if c.DType != AutoDType && !DType(c.DType).Known() {
		ps.say("dtype %q is not one of auto, %s", c.DType, dtypeNames)
	}
	c.stateProblems(ps)
}

// stateProblems checks the fields of recurrent states. They are allowed for
// models without recurrent layers too, where they have no effect, so that one
// file serves several models.
func (c Config) stateProblems(ps *problems) {
	n := c.StateCheckpointInterval
	ps.atLeast(0, int64(n), "state_checkpoint_interval %d")
	if t := c.TokensPerBlock; n > 0 && t > 0 && n%t != 0 {
		ps.say("state_checkpoint_interval %d is not a multiple of tokens_per_block %d", n, t)
	}
	switch c.MambaSSMCacheDType {
	case "", AutoDType, string(Float16), string(BFloat16), string(Float32):
	default:
		ps.say("mamba_ssm_cache_dtype %q is not one of auto, float16, bfloat16, float32",
			c.MambaSSMCacheDType)
	}
}

// memoryProblems checks sizes.
func (c Config) memoryProblems(ps *problems) {
	// The comparison is negated so that NaN, which compares false, is refused.
	if f := c.FreeGPUMemoryFraction; !(f > 0 && f < 1) {
		ps.say("free_gpu_memory_fraction %v is not greater than 0 and less than 1", f)
	}
	if c.MaxTokens != 0 {
		ps.atLeast(1, int64(c.MaxTokens), "max_tokens %d")
	}
	ps.atLeast(0, c.HostCacheSize, "host_cache_size %d")
	if c.ExpectedSeqLen != 0 {
		ps.atLeast(1, int64(c.ExpectedSeqLen), "expected_seq_len %d")
	}
}

// policyProblems checks priorities, events and eviction.
func (c Config) policyProblems(ps *problems) {
	ps.between(0, int(messages.MaxPriority), c.SecondaryOffloadMinPriority,
		"secondary_offload_min_priority")
	ps.atLeast(0, int64(c.EventBufferMaxSize), "event_buffer_max_size %d")
	if !slices.Contains(EvictionPolicies(), c.EvictionPolicy) {
		ps.say("eviction_policy %q is not known; there are %s (importing "+
			"pool/evict/published adds those from papers)", c.EvictionPolicy,
			strings.Join(EvictionPolicies(), ", "))
	}
	ps.atLeast(0, int64(c.PrefillDoublesAt), "prefill_doubles_at %d")
	if c.PrefillDoublesAt > 0 && c.EvictionPolicy != Forecast {
		ps.say("prefill_doubles_at goes with eviction_policy %s only", Forecast)
	}
}

// poolProblems checks the configuration against the pools of the model. Both are
// valid by themselves.
func (c Config) poolProblems(ps *problems, m Model) {
	if c.ExpectedSeqLen > m.MaxSeqLen {
		ps.say("expected_seq_len %d is more than max_seq_len %d", c.ExpectedSeqLen, m.MaxSeqLen)
	}
	c.layerProblems(ps, m)
	if len(*ps) > 0 {
		return
	}
	pools := group(m, c)
	sizeProblems(ps, pools, c.expected(m))
	if m.Encodes() {
		sizeProblems(ps, []Pool{c.crossPool(m, 0)}, m.EncoderMaxLen)
	}
	if c.PoolFractions != nil {
		namingProblems(ps, pools, c.PoolFractions)
	}
}

// fractionTolerance is how far from 1 the sum of the pool fractions may be:
// fractions are written with a few decimal digits.
const fractionTolerance = 1e-6

// fractionProblems checks the values of pool_fractions, which need no pools.
func fractionProblems(ps *problems, fractions map[string]float64) {
	if fractions == nil {
		return
	}
	sum, n := 0.0, len(*ps)
	for _, name := range slices.Sorted(maps.Keys(fractions)) {
		f := fractions[name]
		sum += f
		ps.part(f, "pool_fractions of "+name+":")
	}
	if len(*ps) == n && !(math.Abs(sum-1) <= fractionTolerance) {
		ps.say("pool_fractions sum to %v, not 1", sum)
	}
}

// namingProblems checks that fractions name exactly the pools.
func namingProblems(ps *problems, pools []Pool, fractions map[string]float64) {
	known := make(map[string]bool, len(pools))
	for _, p := range pools {
		known[p.Name] = true
		if _, ok := fractions[p.Name]; !ok {
			ps.say("pool_fractions lacks pool %s", p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fractions)) {
		if !known[name] {
			ps.say("pool_fractions names %q, which is no pool", name)
		}
	}
}
