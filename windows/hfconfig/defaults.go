package hfconfig

import (
	"bytes"
	_ "embed" // of the defaults
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// defaultsText has the defaults of the classes of transformers, by model type, for the keys
// that the rules read, element types excepted. Files leave keys out, nested text parts above
// all. TestDefaults makes the file of
// testdata/shapes.jsonl, without what classes compute from other keys (testdata/derived.json).
//
//go:embed defaults.json
var defaultsText []byte

// defaults are the class defaults by model type. ReadHeader does not use them.
var defaults = sync.OnceValue(func() map[string]map[string]any {
	all := make(map[string]map[string]any)
	d := json.NewDecoder(bytes.NewReader(defaultsText))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		panic(fmt.Sprintf("hfconfig: defaults.json: %v", err))
	}
	return all
})

// defaultsOf are those defaults of a class that the rules of its family read: single values,
// since the lists follow from the number of layers.
func defaultsOf(kind string, class map[string]any) map[string]any {
	f := configs().families[kind]
	if f == nil {
		return nil
	}
	keys, out := f.keys(), make(map[string]any)
	for key, v := range class {
		if key == "per_layer_config" { // which is of so many layers
			continue
		}
		if _, list := v.([]any); v != nil && !list && !strings.HasSuffix(key, "_dtype") &&
			slices.Contains(keys, key) && !configs().passive(key) {
			out[key] = v
		}
	}
	return out
}
