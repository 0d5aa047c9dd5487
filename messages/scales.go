package messages

// LayerScale is what keys and values of one layer were divided by before they
// were stored in 8 bits. The engine keeps it for those that read the pages; it
// reads no element itself.
type LayerScale struct {
	Layer int
	Cross bool // of the layer's cross attention
	K, V  float32
}

// DefaultScale is the scale of a layer that nobody has set.
const DefaultScale float32 = 1

// WriteScales sets scales of layers, all or none. It changes no page: what is
// cached was quantised with the scale before.
type WriteScales struct {
	Scales []LayerScale

	Err error
}

// ReadScales reads the scales of all layers that have one, self attention
// first, by layer.
type ReadScales struct {
	Scales []LayerScale
	Err    error
}
