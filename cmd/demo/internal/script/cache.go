package script

import (
	"fmt"

	"github.com/kvactor/kvactor/windows"
)

// cache reads the cache configuration over its defaults. Wrong types are faults
// of shape, but unknown names and values that the configuration cannot express
// are problems of the configuration, reported with all others.
func (o *object) cache(c *windows.Config) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	o.cacheBlocks(c)
	o.cacheTiers(c)
	o.cacheMemory(c, say)
	if o.has("transfer_mode") { // deprecated: refused whatever it says
		c.TransferMode = "given"
	}
	for i, f := range o.fields {
		if !o.taken[i] {
			say("cache has no field %q", f.name)
		}
	}
	return problems
}

// cacheBlocks reads what blocks are and how they are reused.
func (o *object) cacheBlocks(c *windows.Config) {
	o.setInt("tokens_per_block", &c.TokensPerBlock)
	o.setInt("sink_token_length", &c.SinkTokenLength)
	o.setInt("state_checkpoint_interval", &c.StateCheckpointInterval)
	o.setText("dtype", &c.DType)
	o.setFlag("enable_block_reuse", &c.EnableBlockReuse)
	o.setFlag("enable_partial_reuse", &c.EnablePartialReuse)
	o.setFlag("copy_on_partial_reuse", &c.CopyOnPartialReuse)
	o.setFlag("use_uvm", &c.UseUVM)
	c.MaxAttentionWindow = o.ints("max_attention_window")
}

// cacheTiers reads what goes to host memory, and events.
func (o *object) cacheTiers(c *windows.Config) {
	o.setFlag("onboard_blocks", &c.OnboardBlocks)
	o.setFlag("offload_ahead", &c.OffloadAhead)
	o.setInt("secondary_offload_min_priority", &c.SecondaryOffloadMinPriority)
	o.setInt("event_buffer_max_size", &c.EventBufferMaxSize)
	o.setText("eviction_policy", &c.EvictionPolicy)
	o.setInt("prefill_doubles_at", &c.PrefillDoublesAt)
	c.HostCacheSize = o.intOr("host_cache_size", c.HostCacheSize)
}

// cacheMemory reads what splits the memory. The configuration takes 0 for "not
// given" in some fields, so 0 given is a problem said here.
func (o *object) cacheMemory(c *windows.Config, say func(string, ...any)) {
	if f := o.optNumber("free_gpu_memory_fraction"); f != nil {
		c.FreeGPUMemoryFraction = *f
	}
	if f := o.optNumber("cross_kv_cache_fraction"); f != nil {
		if c.CrossKVCacheFraction = *f; *f == 0 {
			say("cross_kv_cache_fraction is for encoder-decoder models only")
		}
	}
	positive := func(name string, to *int) {
		if o.setInt(name, to); o.has(name) && *to == 0 {
			say("%s 0 is not 1 or more", name)
		}
	}
	positive("max_tokens", &c.MaxTokens)
	positive("expected_seq_len", &c.ExpectedSeqLen)
	c.PoolFractions = o.numbers("pool_fractions")
	c.SaltQuotas = o.numbers("salt_quotas")
	if f := o.optNumber("other_salts_quota"); f != nil {
		if c.OtherSaltsQuota = *f; *f == 0 {
			say("other_salts_quota 0 is not greater than 0 and at most 1")
		}
	}
}

// numbers is an object of numbers; nil if there is none.
func (o *object) numbers(name string) map[string]float64 {
	child := o.child(name)
	if child == nil {
		return nil
	}
	out := make(map[string]float64, len(child.fields))
	for _, f := range child.fields {
		if n := child.optNumber(f.name); n != nil {
			out[f.name] = *n
		}
	}
	return out
}

func (o *object) setInt(name string, to *int) { *to = int(o.intOr(name, int64(*to))) }

func (o *object) setFlag(name string, to *bool) { *to = o.flagOr(name, *to) }

func (o *object) setText(name string, to *string) {
	if s := o.optText(name); s != nil {
		*to = *s
	}
}
