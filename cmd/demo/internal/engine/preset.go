package engine

import (
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/windows"
)

// Preset is a model as the engine sees it, and what computing it costs.
type Preset struct {
	Model   windows.Model
	Windows []int // max_attention_window; nil: full attention
	Costs   cost.Model
}

// longest is no limit: a sequence of replays may be as long as a trace says. A
// window as long is full attention.
const longest = 1 << 26

// Tiny is one layer with one head of two bytes: pages small enough for replays
// of whole traces, whose bytes still tell every token apart from others. Time
// is that of an 8B model.
func Tiny() Preset {
	return Preset{
		Model: windows.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 2, DType: windows.FP8, MaxSeqLen: longest},
		Costs: cost.Llama8B(),
	}
}

// Hybrid is shaped like Gemma-3: every sixth layer has full attention, the
// others a window, and query heads share KV heads. It is scaled down, in layers,
// heads and window, so that its pages fit a laptop; time is that of Gemma-3-12B.
func Hybrid() Preset {
	return Preset{
		Model: windows.Model{
			Layers: 12, KVHeads: []int{2}, HeadDim: 16, DType: windows.BFloat16, MaxSeqLen: 16384,
		},
		Windows: []int{512, 512, 512, 512, 512, longest},
		Costs:   cost.Gemma12B(),
	}
}
