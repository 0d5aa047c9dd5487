package kvconfig

import "github.com/kvactor/kvactor/windows"

// setter sets one field from a value that is not null. Null is the same as an absent
// name in every field, as in TensorRT-LLM, where it is how a file keeps a default.
// A setter does not stop at a problem: it records it and leaves the default, so that
// one error reports everything that is wrong with a file.
type setter func(*reading, entry)

// fields are the names of the fields of windows.Config. Each setter reads its own
// entry only, so the order of the text decides the order of the problems. What a
// value may be, beyond its type, is checked by Config.Validate: the rules of some
// fields need the model, and a host that fills in a Config by hand needs them too.
var fields = map[string]setter{
	"tokens_per_block": integer(
		func(c *windows.Config) *int { return &c.TokensPerBlock }),
	"max_attention_window": window,
	"sink_token_length": integer(
		func(c *windows.Config) *int { return &c.SinkTokenLength }),
	"dtype": text(func(c *windows.Config) *string { return &c.DType }),
	"free_gpu_memory_fraction": number(
		func(c *windows.Config) *float64 { return &c.FreeGPUMemoryFraction }),
	"max_tokens": positive(func(c *windows.Config) *int { return &c.MaxTokens }),
	"host_cache_size": integer(
		func(c *windows.Config) *int64 { return &c.HostCacheSize }),
	"secondary_offload_min_priority": integer(
		func(c *windows.Config) *int { return &c.SecondaryOffloadMinPriority }),
	"onboard_blocks": boolean(
		func(c *windows.Config) *bool { return &c.OnboardBlocks }),
	"enable_block_reuse": boolean(
		func(c *windows.Config) *bool { return &c.EnableBlockReuse }),
	"enable_partial_reuse": boolean(
		func(c *windows.Config) *bool { return &c.EnablePartialReuse }),
	"copy_on_partial_reuse": boolean(
		func(c *windows.Config) *bool { return &c.CopyOnPartialReuse }),
	"event_buffer_max_size": integer(
		func(c *windows.Config) *int { return &c.EventBufferMaxSize }),
	"cross_kv_cache_fraction": crossFraction,
	"use_uvm":                 boolean(func(c *windows.Config) *bool { return &c.UseUVM }),
	"transfer_mode":           transferMode,
	"eviction_policy": text(
		func(c *windows.Config) *string { return &c.EvictionPolicy }),
	"prefill_doubles_at": positive(
		func(c *windows.Config) *int { return &c.PrefillDoublesAt }),
	"state_checkpoint_interval": integer(
		func(c *windows.Config) *int { return &c.StateCheckpointInterval }),
	"mamba_ssm_cache_dtype": text(
		func(c *windows.Config) *string { return &c.MambaSSMCacheDType }),
	"expected_seq_len": positive(
		func(c *windows.Config) *int { return &c.ExpectedSeqLen }),
	"pool_fractions": shares(
		func(c *windows.Config) *map[string]float64 { return &c.PoolFractions }),
	"offload_ahead": boolean(
		func(c *windows.Config) *bool { return &c.OffloadAhead }),
	"salt_quotas": shares(
		func(c *windows.Config) *map[string]float64 { return &c.SaltQuotas }),
	"other_salts_quota": otherSaltsQuota,
}

// integer sets a field of 64 bits; on a platform with smaller ints a value that
// does not fit is too large. A number with a fraction of zero, such as 32.0, is not
// taken for an integer: more often than not it is a mistake of the program that wrote
// the file.
func integer[T int | int64](field func(*windows.Config) *T) setter {
	return func(r *reading, e entry) {
		switch v := e.value.(type) {
		case int64:
			// The value comes back from the smaller type exactly if it fits.
			if int64(T(v)) != v {
				r.say("%s %d is too large", e.name, v)
				return
			}
			*field(&r.config) = T(v)
		case tooLarge:
			r.say("%s %s is too large", e.name, string(v))
		default:
			r.misshape("%s is %s, not an integer", e.name, describe(v))
		}
	}
}

// positive is integer for fields in which 0 stands for none. A text says none by
// leaving the name out, so a 0 in it is a wrong value. Validate cannot see the
// difference any more, therefore it is refused here.
func positive(field func(*windows.Config) *int) setter {
	set := integer(field)
	return func(r *reading, e entry) {
		// Other wrong values are left to integer and to Validate.
		if v, ok := e.value.(int64); ok && v == 0 {
			r.say("%s 0 is not 1 or more", e.name)
			return
		}
		set(r, e)
	}
}

// number sets a field that is a fraction.
func number(field func(*windows.Config) *float64) setter {
	return func(r *reading, e entry) {
		if v, ok := r.number(e); ok {
			*field(&r.config) = v
		}
	}
}

// number reads any number; an integer is one too, because a fraction of 1 is often
// written without a point. The values .inf and .nan of YAML pass; Validate refuses
// them with the field's own rule.
func (r *reading) number(e entry) (float64, bool) {
	switch v := e.value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case tooLarge:
		r.say("%s %s is too large", e.name, string(v))
	default:
		r.misshape("%s is %s, not a number", e.name, describe(v))
	}
	return 0, false
}

// boolean sets a flag. The numbers 0 and 1 are refused, and so are words such as yes
// and on, which YAML 1.1 took for booleans and YAML 1.2 takes for strings.
func boolean(field func(*windows.Config) *bool) setter {
	return func(r *reading, e entry) {
		v, ok := e.value.(bool)
		if !ok {
			r.misshape("%s is %s, not a boolean", e.name, describe(e.value))
			return
		}
		*field(&r.config) = v
	}
}

// text sets a field that is a word.
func text(field func(*windows.Config) *string) setter {
	return func(r *reading, e entry) {
		v, ok := e.value.(string)
		if !ok {
			r.misshape("%s is %s, not a string", e.name, describe(e.value))
			return
		}
		*field(&r.config) = v
	}
}

// window reads the list of windows. An empty list stays empty instead of becoming
// nil, so that Validate can tell it from none and refuse it. A list with a wrong
// element keeps the others, so that Validate reports what is wrong with them.
func window(r *reading, e entry) {
	list, ok := e.value.([]any)
	if !ok {
		r.misshape("%s is %s, not a list of integers", e.name, describe(e.value))
		return
	}
	// Not nil, see above.
	windows := make([]int, 0, len(list))
	for _, value := range list {
		switch v := value.(type) {
		case int64:
			if int64(int(v)) != v {
				r.say("%s %d is too large", e.name, v)
				continue
			}
			windows = append(windows, int(v))
		case tooLarge:
			r.say("%s %s is too large", e.name, string(v))
		default:
			r.misshape("%s has %s in it, not an integer", e.name, describe(v))
		}
	}
	r.config.MaxAttentionWindow = windows
}

// crossFraction reads the part of the cross pool. 0 is a fraction too, but in Config
// it stands for none; a text that says 0 has a wrong value.
func crossFraction(r *reading, e entry) {
	v, ok := r.number(e)
	switch {
	case ok && v == 0:
		r.say("%s is for encoder-decoder models only", e.name)
	case ok:
		r.config.CrossKVCacheFraction = v
	}
}

// transferMode reads a deprecated option, which is refused whatever its value is. In Config the
// empty string stands for none, and nothing for other types, so these are refused here.
func transferMode(r *reading, e entry) {
	v, _ := e.value.(string)
	if v == "" {
		r.say("%s is deprecated", e.name)
	}
	r.config.TransferMode = v
}

// otherSaltsQuota reads the quota of all other salts. 0 stands for none in Config; a
// text that says 0 has a wrong value.
func otherSaltsQuota(r *reading, e entry) {
	v, ok := r.number(e)
	switch {
	case ok && v == 0:
		r.say("%s 0 is not greater than 0 and at most 1", e.name)
	case ok:
		r.config.OtherSaltsQuota = v
	}
}

// shares sets a field that gives names their parts of a whole. A name that is given
// twice is a mistake of the text, whatever its values: JSON and YAML leave open which
// of them counts.
func shares(field func(*windows.Config) *map[string]float64) setter {
	return func(r *reading, e entry) {
		list, ok := e.value.([]entry)
		if !ok {
			r.misshape("%s is %s, not an object", e.name, describe(e.value))
			return
		}
		parts := make(map[string]float64, len(list))
		for _, part := range list {
			// The first value counts, so that the rest is still checked.
			if _, twice := parts[part.name]; twice {
				r.misshape("%s has %s twice", e.name, part.name)
				continue
			}
			if part.value == nil { // as if it were not there
				continue
			}
			// The name in the problem says which part of which field.
			if f, ok := r.number(entry{e.name + " of " + part.name, part.value}); ok {
				parts[part.name] = f
			}
		}
		*field(&r.config) = parts
	}
}
