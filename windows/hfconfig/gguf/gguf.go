// Package gguf reads the geometry of a model's cache from the header of a GGUF
// file:
//
//	model, err := gguf.Open("Qwen3-8B-Q4_K_M.gguf", hfconfig.Options{})
//
// The metadata of GGUF has other names than config.json for the same values, so
// it is translated and read by package hfconfig, with the same rules for what each
// architecture's layers keep: most files do not say which layers have windows. Of
// a file in several parts the first one is named.
//
// The keys and values of the cache are assumed to be float16 and recurrent states
// float32, as llama.cpp keeps them; a GGUF file names the types of its weights
// only.
//
// The package is separate from hfconfig so that only hosts that read GGUF files
// depend on a parser of them.
package gguf

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// Open reads the header of a GGUF file. Errors are those of hfconfig.Read; a file
// that is not GGUF is an ErrBadRequest refusal. The tensors are not read, so that a file
// of many gigabytes is read as fast as a small one.
func Open(path string, o hfconfig.Options) (hfconfig.Model, error) {
	// A path that does not exist is the error of the file system, not a file that is no GGUF.
	if _, err := os.Stat(path); err != nil {
		return hfconfig.Model{}, err
	}
	file, err := parse(path)
	if err != nil {
		return hfconfig.Model{}, refusals.New(messages.ErrBadRequest, "%s is not a GGUF file: %v", path, err)
	}
	// The header is translated into the words of a config.json, so that the rules for
	// architectures stand once, in hfconfig.
	h := header{values: make(map[string]any)}
	for _, kv := range file.Header.MetadataKV {
		h.values[kv.Key] = plain(kv.Value)
	}
	h.arch, _ = h.values["general.architecture"].(string)
	values, err := h.translate()
	if err != nil {
		return hfconfig.Model{}, err
	}
	o.StateDType = cmp.Or(o.StateDType, "float32")
	o.ConvDType = cmp.Or(o.ConvDType, "float32")
	return hfconfig.ReadValues(values, o)
}

// parse calls the library, which panics on some broken files. The file is read, not
// mapped: a mapped file that becomes shorter meanwhile ends the process. Large
// metadata, such as the vocabulary, are skipped; the lists with a number for each layer
// are not among them.
func parse(path string) (file *parser.GGUFFile, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return parser.ParseGGUFFile(path, parser.SkipLargeMetadata())
}

// plain converts a value of the library to those that hfconfig takes: integers of any
// size to int, lists to []any. The writers of GGUF files do not agree on the sizes of
// integers.
func plain(value any) any {
	switch v := value.(type) {
	case uint8:
		return int(v)
	case int8:
		return int(v)
	case uint16:
		return int(v)
	case int16:
		return int(v)
	case uint32:
		return int(v)
	case int32:
		return int(v)
	case uint64:
		return int(v)
	case int64:
		return int(v)
	case parser.GGUFMetadataKVArrayValue:
		list := make([]any, len(v.Array))
		// Elements have types of their own, as values have.
		for i, element := range v.Array {
			list[i] = plain(element)
		}
		return list
	default:
		return v
	}
}

// header is the metadata of a file. Keys begin with the name of the architecture, such
// as llama.block_count, but for the general ones.
type header struct {
	arch   string
	values map[string]any
}

// value returns a value of the architecture, nil if it is absent.
func (h header) value(key string) any { return h.values[h.arch+"."+key] }

// number returns an integer of the architecture, 0 if it is absent.
func (h header) number(key string) int {
	n, _ := h.value(key).(int)
	return n
}

// kinds are the model types of architectures. Others keep their name, which
// hfconfig takes for plain attention if no key says otherwise.
var kinds = map[string]string{
	"llama4": "llama4_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen2vl": "qwen2_vl", "qwen3vl": "qwen3_vl_text",
	"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "gpt-oss": "gpt_oss", "command-r": "cohere",
	"deepseek2": "deepseek_v3", "deepseek32": "deepseek_v32", "qwen3next": "qwen3_next", "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text",
	"falcon-h1": "falcon_h1", "granitehybrid": "granitemoehybrid", "mistral3": "ministral3",
}

// names are config.json's names of GGUF's keys, without the architecture. The number
// of rotary dimensions is the position's part of a latent vector only where there is
// one; other models do not read it.
var names = map[string]string{
	"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
	"attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
	"attention.key_length": "head_dim", "attention.sliding_window": "sliding_window", "attention.chunk_size": "attention_chunk_size",
	"attention.shared_kv_layers": "num_kv_shared_layers", "attention.kv_lora_rank": "kv_lora_rank", "rope.dimension_count": "qk_rope_head_dim",
	"attention.indexer.key_length": "index_head_dim", "full_attention_interval": "full_attention_interval",
}

// translate gives the metadata the names of config.json. The lengths of keys and
// values are left out for latent attention: older files have those of the heads before
// the compression, newer ones those of the vector, and both follow from kv_lora_rank.
func (h header) translate() (map[string]any, error) {
	if h.arch == "" {
		return nil, refusals.New(messages.ErrConfigInvalid, "general.architecture is missing")
	}
	values := map[string]any{"model_type": cmp.Or(kinds[h.arch], h.arch), "dtype": "float16"}
	// The order does not matter: no two keys have the same name.
	for key, name := range names {
		if v := h.value(key); v != nil {
			values[name] = v
		}
	}
	if v := h.number("attention.value_length"); v > 0 && v != h.number("attention.key_length") && h.value("attention.kv_lora_rank") == nil {
		values["v_head_dim"] = v
	}
	h.pattern(values)
	if err := h.states(values); err != nil {
		return nil, err
	}
	switch h.arch {
	case "llama4":
		if values["attention_chunk_size"] == nil {
			values["attention_chunk_size"] = 8192 // llama.cpp's constant
		}
	case "gemma4": // the lengths are those of the full layers, with others for windows
		if n := h.number("attention.key_length_swa"); n > 0 {
			values["head_dim"], values["global_head_dim"] = n, h.number("attention.key_length")
		}
		delete(values, "v_head_dim")
	case "phi3": // llama.cpp does not use its window
		delete(values, "sliding_window")
	}
	return values, nil
}

// pattern translates which layers have windows, if the file says so: a list has
// a true for each that does, a number is the period of full attention.
func (h header) pattern(values map[string]any) {
	switch p := h.value("attention.sliding_window_pattern").(type) {
	case int:
		values["sliding_window_pattern"] = p
	case []any:
		types := make([]any, len(p))
		for i, windowed := range p {
			types[i] = "full_attention"
			if windowed == true {
				types[i] = "sliding_attention"
			}
		}
		values["layer_types"] = types
	}
}

// states translates the sizes of recurrent states. GGUF uses the keys of selective
// state space models for all of them:
//
//	                 state space models       linear attention
//	time_step_rank   heads                    value heads
//	inner_size       heads × head size        value heads × value size
//	state_size       size of the state        key size
//	group_count      groups                   key heads
//	conv_kernel      length of the convolution
//
// The layers that have a state are those without heads of keys and values, except in
// models that have both in every layer.
func (h header) states(values map[string]any) error {
	heads, inner, state := h.number("ssm.time_step_rank"), h.number("ssm.inner_size"), h.number("ssm.state_size")
	groups, kernel := h.number("ssm.group_count"), h.number("ssm.conv_kernel")
	// A header without sizes of states is that of a model without recurrent layers.
	if inner == 0 && kernel == 0 {
		return nil
	}
	// The sizes of a head follow by division.
	if heads == 0 {
		return refusals.New(messages.ErrConfigInvalid, "%s.ssm.time_step_rank is missing", h.arch)
	}
	// A recurrent layer has no heads of keys and values; no key names it otherwise.
	recurrent := h.layers("attention.head_count_kv", func(n int) bool { return n == 0 })
	switch h.arch {
	case "falcon-h1", "granitehybrid":
		values["mamba_n_heads"], values["mamba_d_head"], values["mamba_d_state"] = heads, inner/heads, state
		values["mamba_n_groups"], values["mamba_d_conv"] = max(1, groups), kernel
		if h.arch == "granitehybrid" {
			values["layer_types"] = choose(recurrent, "mamba", "attention")
		}
	case "nemotron_h", "nemotron_h_moe":
		values["model_type"] = "nemotron_h"
		values["mamba_num_heads"], values["mamba_head_dim"], values["ssm_state_size"] = heads, inner/heads, state
		values["n_groups"], values["conv_kernel"] = max(1, groups), kernel
		kinds := choose(recurrent, "mamba", "attention")
		for i, forward := range h.layers("feed_forward_length", func(n int) bool { return n > 0 }) {
			if forward && i < len(kinds) && kinds[i] == "mamba" {
				kinds[i] = "mlp" // neither attention nor a state
			}
		}
		values["layers_block_type"] = kinds
	case "qwen3next", "qwen35", "qwen35moe":
		values["linear_num_key_heads"], values["linear_key_head_dim"] = groups, state
		values["linear_num_value_heads"], values["linear_value_head_dim"] = heads, inner/heads
		values["linear_conv_kernel_dim"] = kernel
	case "mamba": // without heads: time_step_rank is something else there
		values["intermediate_size"], values["state_size"], values["conv_kernel"] = inner, state, kernel
	case "mamba2":
		values["num_heads"], values["head_dim"], values["state_size"] = heads, inner/heads, state
		values["n_groups"], values["conv_kernel"] = max(1, groups), kernel
	default:
		return refusals.New(messages.ErrConfigInvalid, "%s.ssm.inner_size: the states of architecture %q are not known", h.arch, h.arch)
	}
	// hfconfig has one count for all attention layers; the zeros stand for recurrent layers.
	values["num_key_value_heads"] = slices.Max(append(h.numbers("attention.head_count_kv"), 0))
	return nil
}

// numbers returns a list of integers; a single number stands for every layer. The
// number of layers is bounded, because a broken file may name any.
func (h header) numbers(key string) []int {
	var out []int
	switch v := h.value(key).(type) {
	case int:
		out = slices.Repeat([]int{v}, max(0, min(h.number("block_count"), 1<<16)))
	case []any:
		for _, element := range v {
			n, _ := element.(int)
			out = append(out, n)
		}
	}
	return out
}

// layers reports for each layer whether its number is as asked.
func (h header) layers(key string, is func(int) bool) []bool {
	var out []bool
	for _, n := range h.numbers(key) {
		out = append(out, is(n))
	}
	return out
}

// choose lists one of two words for each layer, as layer_types of a config.json does.
func choose(which []bool, yes, no string) []any {
	words := make([]any, len(which))
	for i, w := range which {
		words[i] = no
		if w {
			words[i] = yes
		}
	}
	return words
}

// IsFile reports whether a path names a GGUF file, by its ending.
func IsFile(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gguf") }
