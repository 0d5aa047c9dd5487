package model

import (
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// calibrationTokens is the length of the text that scales are measured on.
const calibrationTokens = 64

// Calibrate gives scales for a cache of 8 bits: the largest key and value of each
// layer in a fixed text of tokens spread over the vocabulary become the largest
// number of the type. Scales are a function of the model alone. Larger numbers
// saturate.
func Calibrate(
	m *Model, dtype windows.DType, workers *attention.Workers,
) ([]messages.LayerScale, error) {
	top := map[[2]int]float64{} // by layer, −1−layer for cross attention, and part
	geometry, limits := m.Geometry(calibrationTokens, windows.Float32)
	config := windows.DefaultConfig()
	config.MaxAttentionWindow = limits
	if m.Encodes() {
		config.CrossKVCacheFraction = 0.5
	}
	pools, err := windows.Pools(geometry, config)
	if err != nil {
		return nil, err
	}
	if cross, ok := windows.CrossPool(geometry, config); ok {
		pools = append(pools, cross)
	}
	e, err := NewExecutor(m, pools, workers)
	if err != nil {
		return nil, err
	}
	e.TraceKV = func(layer int, part attention.Part, row []float32) {
		at := [2]int{layer, int(part)}
		for _, x := range row {
			top[at] = max(top[at], math.Abs(float64(x)))
		}
	}
	s := &Sequence{Prompt: calibrationTokens, LogitsFrom: calibrationTokens}
	for i := range calibrationTokens {
		s.Tokens = append(s.Tokens, messages.Token(i*7919%m.Vocab))
	}
	if m.Encodes() {
		s.Encoder = s.Tokens
	}
	for _, p := range pools {
		blocks := make([][]byte, calibrationTokens/p.TokensPerBlock)
		if p.Kind == windows.KindState {
			blocks = blocks[:1] // the working page
		}
		for i := range blocks {
			blocks[i] = make([]byte, p.PageBytes())
		}
		s.Pages = append(s.Pages, blocks)
	}
	if err := e.Run([]*Sequence{s}); err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	return m.scales(top, dtype), nil
}

// scales turns the largest numbers into scales. Keys are measured before they
// turn, which makes a number at most √2 larger.
func (m *Model) scales(top map[[2]int]float64, dtype windows.DType) []messages.LayerScale {
	most := 127.0
	if dtype == windows.FP8 {
		most = 448
	}
	of := func(layer int, cross bool) messages.LayerScale {
		at := layer
		if cross {
			at = -1 - layer
		}
		k, v := max(top[[2]int{at, 0}], 1e-3), max(top[[2]int{at, 1}], 1e-3)
		return messages.LayerScale{Layer: layer, Cross: cross, K: float32(k * math.Sqrt2 / most),
			V: float32(v / most)}
	}
	var out []messages.LayerScale
	for i, c := range m.caches {
		scale := of(i, false)
		scale.Layer = c.layer
		out = append(out, scale)
	}
	if m.cross.heads > 0 {
		for i := range m.caches {
			out = append(out, of(i, true))
		}
	}
	return out
}
