// Package kvconfig reads a windows.Config from JSON or YAML, by the names of
// TensorRT-LLM's kv_cache_config:
//
//	kv_cache_config:
//	  max_attention_window: [512, 512, 512, 512, 512, 32768]
//	  free_gpu_memory_fraction: 0.8
//	  host_cache_size: 8589934592
//	  dtype: auto
//
// The outer name may be left out. What is not given, or given as null, has its
// default. Unknown names are refused, each by name, and so are values of the
// wrong type, all in one error. Values are checked where the model is known, by
// Config.Validate; because the configuration comes back with the error too, both
// kinds of problems can be reported at once:
//
//	c, err := kvconfig.ReadYAML(file)
//	err = windows.Join(err, c.Validate(model))
//
// It stands apart from package windows so that only hosts that read files
// depend on a YAML parser.
package kvconfig
