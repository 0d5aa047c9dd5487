// Package hfconfig reads the geometry of a model's cache from the config.json of a Hugging Face
// model:
//
//	// a folder or a file
//	model, err := hfconfig.Open("Qwen3-Next-80B-A3B-Instruct", hfconfig.Options{})
//	cache := model.Configure(windows.DefaultConfig())
//	pools, err := windows.Pools(model.Model, cache)
//
// Package gguf, below this one, does the same for GGUF files.
//
// # What is read
//
// Of a model that also reads images or sound, the text part; layers, KV heads and head sizes under
// the names that the model types use; the element type; which layers have a window, a chunk or a
// recurrent state, from layer_types or from the keys and the fixed patterns of the model type;
// latent attention; layers that share another layer's keys and values; encoder–decoder models. An
// absent key has the default of its model type, if the package knows one.
//
// # What is refused
//
// A cache planned for the wrong geometry loses contents or wastes most of its memory, so a key that
// the package can't interpret is an error that names it. families.txt has the rules of the known
// model types, one line each. Any other model type is read as plain attention, with a note, if all
// its keys are those of plain attention or listed in harmless.txt; otherwise the error names the
// keys. Keys of a known type that no rule names are noted. Options.Strict refuses both.
//
// A model without attention (mamba, mamba2, falcon_mamba, rwkv7, xlstm) has only states. Types
// whose caches no pool holds (phi4flash) are refused.
//
// # What is assumed
//
// A file that names no element type gets float32, as in transformers, and a note in Model.Notes
// says so; only gpt_oss, whose files never name one, gets bfloat16. A host that knows better sets
// windows.Config.DType. Weights aren't read. The cache of a quantised model has the type that the
// model computes with, unless the file asks for another one by kv_cache_scheme, or a
// hf_quant_config.json beside it does by kv_cache_quant_algo. A note says so.
//
// # Several devices
//
// With Options.TensorParallel the model is one device's share. KV heads are divided, or repeated if
// there are fewer of them than devices; a number that allows neither is an error. Latent vectors
// are the same on each device. Heads of states are only divided, since each device updates its own.
//
// # Costs
//
// A file is read once, at most MaxBytes of it, and none of it is kept. The functions have no state:
// any number of goroutines may call them.
package hfconfig
