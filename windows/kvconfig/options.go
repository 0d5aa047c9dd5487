package kvconfig

import "fmt"

// options are the names of TensorRT-LLM's KvCacheConfig that are not fields of
// windows.Config. A file that TensorRT-LLM reads must be readable here, but an
// option that asks for something the engine does not do must not be dropped
// silently. So each name is handled in one of three ways: its value is set in
// the field of windows.Config that means the same, it is accepted because it
// tunes a part that the engine does not have, or it is refused with the reason
// unless its value asks for nothing.
var options = map[string]setter{
	// Other names of fields. The interval is the distance in tokens between the checkpoints of
	// recurrent states, 0 for none at an interval.
	"avg_seq_len":                alias("expected_seq_len"),
	"mamba_state_cache_interval": alias("state_checkpoint_interval"),
	"mamba_state_config":         stateConfig,

	// Without a meaning here.
	"attention_dp_events_gather_period_ms": accepted(aNumber),
	"enable_swa_scratch_reuse":             accepted(aBoolean),
	"fp8_context_mla_kv_len_cap":           accepted(anInteger),
	"iteration_stats_interval":             accepted(anInteger),
	"kv_cache_event_hash_algo":             accepted(aString),
	"mamba_ssm_philox_rounds":              accepted(anInteger),
	"mamba_ssm_stochastic_rounding":        accepted(aBoolean),
	"max_util_for_resume":                  accepted(aNumber),
	"use_kv_cache_manager_v2":              accepted(anyKind),

	// Refused with a reason, and with the values that ask for nothing.
	"block_reuse_config": refused(anObject,
		"reuse follows enable_block_reuse, without a policy per conversation"),
	"disk_cache_path":           refused(aString, onDisk, ""),
	"disk_cache_size":           refused(anInteger, onDisk, int64(0)),
	"enable_kv_pool_rebalance":  refused(aBoolean, "pass WithAutoRebalance to the engine", false),
	"kv_cache_retention_config": refused(anyKind, "a retention belongs to a request"),
	"kv_events_config":          refused(anObject, publisher),
	"max_gpu_total_bytes": refused(anInteger,
		"limit the cache by free_gpu_memory_fraction or max_tokens", int64(0)),
	"pool_ratio": refused(aList, "set pool_fractions, which names the pools"),
}

// onDisk is what keeps pages on a disk, publisher what publishes events.
const (
	onDisk    = "a store is attached to the engine: --store file:///a/folder, offloader/stores"
	publisher = "a publisher is attached to the engine: --events, events/publish"
)

// kind is a type of values, in the words of an error.
type kind struct {
	name string
	is   func(any) bool
}

// The kinds of values. An integer that does not fit 64 bits is still an integer: the
// options with this kind are not used, so their size does not matter.
var (
	anInteger = kind{"an integer", func(v any) bool { return is[int64](v) || is[tooLarge](v) }}
	aNumber   = kind{"a number", func(v any) bool {
		return is[int64](v) || is[tooLarge](v) || is[float64](v)
	}}
	aBoolean = kind{"a boolean", is[bool]}
	aString  = kind{"a string", is[string]}
	aList    = kind{"a list", is[[]any]}
	anObject = kind{"an object", is[[]entry]}
	anyKind  = kind{"", func(any) bool { return true }}
)

// is reports whether a value has the type.
func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// accepted takes any value of the kind. The value has no effect.
func accepted(k kind) setter {
	return func(r *reading, e entry) { r.check(e, k) }
}

// refused takes the neutral values, which ask for nothing, and refuses every
// other value with the reason.
func refused(k kind, reason string, neutral ...any) setter {
	return func(r *reading, e entry) {
		if !r.check(e, k) {
			return
		}
		// The values are compared as any, so a list or an object is equal to none.
		for _, n := range neutral {
			if e.value == n {
				return
			}
		}
		r.say("%s is not supported: %s", shown(e), reason)
	}
}

// check reports whether the entry's value is of the kind, and records a problem
// if it is not.
func (r *reading) check(e entry, k kind) bool {
	ok := k.is(e.value)
	if !ok {
		r.misshape("%s is %s, not %s", e.name, describe(e.value), k.name)
	}
	return ok
}

// shown is the name of an option with its value. Lists and objects are left out: they
// may be long, and the name says where to look.
func shown(e entry) string {
	switch e.value.(type) {
	case []any, []entry:
		return e.name
	case string:
		return fmt.Sprintf("%s %q", e.name, e.value)
	default:
		return fmt.Sprintf("%s %v", e.name, e.value)
	}
}

// alias sets the field of a name, which may be another one than that of the entry.
func alias(field string) setter {
	set := func(r *reading, e entry) { r.set(field, e) }
	return func(r *reading, e entry) { r.named(field, e, set) }
}

// stateConfig reads the section of recurrent states. The engine makes a
// checkpoint at the branch and at the end of each prompt in any case; other
// positions than multiples of an interval cannot be named.
func stateConfig(r *reading, e entry) {
	if r.check(e, anObject) {
		r.object(e.name+".", e.value.([]entry), stateOptions)
	}
}

// stateOptions are the names within mamba_state_config.
var stateOptions = map[string]setter{
	"periodic_snapshot_interval": alias("state_checkpoint_interval"),
	"enable_branch_snapshot": refused(aBoolean, "branches always get a checkpoint",
		true),
	"additional_snapshot_offsets_from_start": offsets,
	"additional_snapshot_offsets_from_end":   offsets,
}

// offsets accepts a list only if it adds nothing: empty, or 0 from the end,
// which is a position that gets a checkpoint in any case.
func offsets(r *reading, e entry) {
	if !r.check(e, aList) {
		return
	}
	for _, v := range e.value.([]any) {
		// 0.0 is refused as well: offsets are counts of tokens.
		if v != int64(0) {
			r.say("%s is not supported: checkpoints are made at branches, at the prompt's end and at "+
				"multiples of state_checkpoint_interval", e.name)
			return
		}
	}
}
