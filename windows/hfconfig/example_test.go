package hfconfig_test

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// A config.json gives the model and the windows of an engine's configuration.
func ExampleRead() {
	file := strings.NewReader(`{"model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":24,
		"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"sliding_window":128,
		"max_position_embeddings":131072}`)
	model, err := hfconfig.Read(file, hfconfig.Options{TensorParallel: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	// For the Cache of an engine's Config, with model.Model.
	cache := model.Configure(windows.DefaultConfig())
	pools, err := windows.Pools(model.Model, cache)
	for _, p := range pools {
		fmt.Println(p.Name, len(p.Layers), "layers,", p.TokenBytes(), "bytes a token")
	}
	fmt.Println(err)
	// Output:
	// w128h4 12 layers, 12288 bytes a token
	// wfullh4 12 layers, 12288 bytes a token
	// <nil>
}
