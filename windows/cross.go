package windows

import (
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

// Encodes reports whether the model is an encoder–decoder model, whose decoder
// attends to the encoder's output.
func (m Model) Encodes() bool { return m.CrossLayers > 0 }

// CrossPool returns the pool of the cross attention's keys and values. A page
// holds those of a block of encoder tokens in the first CrossLayers layers, with
// the shape of layer 0. The pool comes after all pools of Pools; ok is false if
// the model has no encoder. Both arguments must be valid.
func CrossPool(m Model, c Config) (p Pool, ok bool) {
	if !m.Encodes() {
		return Pool{}, false
	}
	return c.crossPool(m, messages.PoolID(len(group(m, c)))), true
}

func (c Config) crossPool(m Model, id messages.PoolID) Pool {
	p := c.pool(identity{heads: m.CrossKVHeads, Shape: c.shape(m, 0)})
	p.ID, p.Name, p.Kind, p.SideBytes = id, "cross_h"+strconv.Itoa(m.CrossKVHeads), KindCross, 0
	for i := range m.CrossLayers {
		p.Layers = append(p.Layers, i)
	}
	return p
}

// crossShare is the part of so many bytes that the cross pool may take.
func (c Config) crossShare(bytes uint64) uint64 {
	return mulDiv(bytes, units(c.CrossKVCacheFraction), decimalUnit)
}

// SplitCross returns the pages of the cross pool: cross_kv_cache_fraction of the
// device memory that Split may use and of host_cache_size, rounded down to
// pages, at most ⌈max_tokens/tpb⌉ on the device. Split divides the rest between
// the other pools. For a model without an encoder the counts are 0.
func SplitCross(m Model, c Config, b Budget) (PageCounts, error) {
	if err := c.Validate(m); err != nil {
		return PageCounts{}, err
	}
	if err := b.refuse(c); err != nil {
		return PageCounts{}, err
	}
	if !m.Encodes() {
		return PageCounts{}, nil
	}
	n, p := c.splitCross(m, b), c.crossPool(m, 0)
	var ps problems
	if n.Primary == 0 {
		ps.say("pool %s gets no page: one takes %d bytes", p.Name, p.PageBytes())
	}
	if n.Primary > MaxPages || n.Secondary > MaxPages {
		ps.say("pool %s would have more than %d pages of %d bytes; larger pages need a larger "+
			"tokens_per_block", p.Name, MaxPages, p.PageBytes())
	}
	if err := refuse(ps); err != nil {
		return PageCounts{}, err
	}
	return n, nil
}

// splitCross is SplitCross for valid arguments and a model with an encoder.
func (c Config) splitCross(m Model, b Budget) PageCounts {
	p := c.crossPool(m, 0)
	page := uint64(p.PageBytes())
	primary := c.crossShare(c.deviceShare(b)) / page
	if c.MaxTokens > 0 {
		primary = min(primary, uint64(blocksOf(c.MaxTokens, c.TokensPerBlock)))
	}
	return PageCounts{Primary: int(primary),
		Secondary: int(c.crossShare(uint64(c.HostCacheSize)) / page)}
}

// deviceShare is the free device memory that may be used.
func (c Config) deviceShare(b Budget) uint64 {
	return mulDiv(uint64(b.DeviceBytes), units(c.FreeGPUMemoryFraction), decimalUnit)
}

// selfShare is the device and host memory without that of the cross pool.
func (c Config) selfShare(m Model, b Budget) (device, host uint64) {
	device, host = c.deviceShare(b), uint64(c.HostCacheSize)
	if p, ok := CrossPool(m, c); ok {
		n := c.splitCross(m, b)
		device -= uint64(n.Primary) * uint64(p.PageBytes())
		host -= uint64(n.Secondary) * uint64(p.PageBytes())
	}
	return device, host
}

// encoderProblems checks the encoder part of a model.
func (m Model) encoderProblems(ps *problems) {
	if m.CrossLayers == 0 {
		if m.CrossKVHeads != 0 {
			ps.say("cross_kv_heads is for encoder-decoder models only")
		}
		if m.EncoderMaxLen != 0 {
			ps.say("encoder_max_len is for encoder-decoder models only")
		}
		return
	}
	if m.CrossLayers < 0 || m.CrossLayers > m.Layers {
		ps.say("cross_layers %d is not between 1 and the %d layers of the decoder", m.CrossLayers,
			m.Layers)
	}
	ps.atLeast(1, int64(m.CrossKVHeads), "cross_kv_heads %d")
	ps.between(1, MaxSeqLenEver, m.EncoderMaxLen, "encoder_max_len")
}

// crossProblems checks cross_kv_cache_fraction.
func (c Config) crossProblems(ps *problems, m Model) {
	f := c.CrossKVCacheFraction
	switch {
	case !m.Encodes() && f != 0:
		ps.say("cross_kv_cache_fraction is for encoder-decoder models only")
	case m.Encodes() && f == 0:
		ps.say("cross_kv_cache_fraction is missing: an encoder-decoder model needs it")
	case m.Encodes() && !(f > 0 && f < 1): // negated, so that NaN is refused as well
		ps.say("cross_kv_cache_fraction %v is not greater than 0 and less than 1", f)
	}
}
