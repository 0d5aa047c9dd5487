package kvactor_test

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// A file of TensorRT-LLM's options configures an engine.
func ExampleOpen_options() {
	file := strings.NewReader(`
backend: pytorch
enable_chunked_prefill: true
kv_cache_config:
  tokens_per_block: 16
  max_attention_window: [512, 4096]
  free_gpu_memory_fraction: 0.5
  enable_partial_reuse: false
`)
	cache, err := kvconfig.ReadYAML(file)
	must(err)
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	engine, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 4, KVHeads: []int{2}, HeadDim: 64, DType: kvactor.Float16, MaxSeqLen: 4096,
		},
		Cache: cache, Device: device,
	})
	must(err)
	defer closeEngine(engine)
	for _, pool := range engine.Pools() {
		fmt.Println(pool.Name, pool.Layers)
	}

	// What the engine does not do is refused, with what does it.
	_, err = kvconfig.ReadYAML(strings.NewReader("disk_cache_size: 1000"))
	fmt.Println(strings.ReplaceAll(err.Error(), ": ", ":\n"))
	// Output:
	// w512h2 [0 2]
	// wfullh2 [1 3]
	// disk_cache_size 1000 is not supported:
	// a store is attached to the engine:
	// --store file:///a/folder, offloader/stores
}
