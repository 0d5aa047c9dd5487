package messages

// LayerScale has the divisors of one layer's keys and values before they are stored
// in 8 bits; 1 until WriteScales sets them. The engine only keeps them for those who read the pages.
type LayerScale struct {
	Layer int
	Cross bool // the scales are those of the layer's cross attention
	K, V  float32
}

// WriteScales sets the scales of layers, all or none of them. It changes no page:
// cached elements were divided by the scales of before.
type WriteScales struct {
	Scales []LayerScale

	Err error
	Tag any
}

// ReadScales reads the scales of all layers that have them: self attention first,
// then cross attention, each by layer.
type ReadScales struct {
	Scales []LayerScale
	Err    error
	Tag    any
}
