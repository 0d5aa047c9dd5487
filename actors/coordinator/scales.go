package coordinator

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Scaled lists the layers of pools with 8-bit elements, ascending, each with
// the default scale: those whose scales the coordinator keeps.
func Scaled(pools []windows.Pool) []messages.LayerScale {
	var scales []messages.LayerScale
	for _, p := range pools {
		if p.DType.Bytes() != 1 {
			continue
		}
		for _, layer := range p.Layers {
			scales = append(scales, messages.LayerScale{Layer: layer, K: messages.DefaultScale, V: messages.DefaultScale})
		}
	}
	slices.SortFunc(scales, func(a, b messages.LayerScale) int { return a.Layer - b.Layer })
	return scales
}

// writeScales sets scales: all are checked before any is set. They are the
// coordinator's own and outlive the failure of any actor.
func (c *Coordinator) writeScales(r *messages.WriteScales) {
	r.Err = nil
	if refusal := c.validateScales(r.Scales); refusal != nil {
		r.Err = refusal
		c.reply()
		return
	}
	for _, s := range r.Scales {
		c.Scales[c.scaleOf(s)] = s
	}
	c.settled = true
	c.reply()
}

// scaleOf is the index of a layer's scale, −1 if the layer has none.
func (c *Coordinator) scaleOf(s messages.LayerScale) int {
	return slices.IndexFunc(c.Scales, func(own messages.LayerScale) bool { return own.Layer == s.Layer && own.Cross == s.Cross })
}

func (c *Coordinator) validateScales(scales []messages.LayerScale) *messages.Refusal {
	seen := make([]bool, len(c.Scales))
	for _, s := range scales {
		name := "layer"
		if s.Cross {
			name = "the cross attention of layer"
		}
		i := c.scaleOf(s)
		switch {
		case !validScale(s.K) || !validScale(s.V):
			return messages.Refuse(messages.BadRequest, "scales %v and %v of %s %d are not finite and greater than 0", s.K, s.V, name, s.Layer)
		case i < 0:
			return messages.Refuse(messages.NotSupported, "%s %d has no elements of 8 bits, so it has no scales", name, s.Layer)
		case seen[i]:
			return messages.Refuse(messages.BadRequest, "%s %d is given twice", name, s.Layer)
		}
		seen[i] = true
	}
	return nil
}

// validScale is false for NaN too, which is not greater than anything.
func validScale(x float32) bool { return x > 0 && !math.IsInf(float64(x), 1) }

// readScales copies the scales.
func (c *Coordinator) readScales(r *messages.ReadScales) {
	r.Err = nil
	r.Scales = append(r.Scales[:0], c.Scales...)
	c.reply()
}
