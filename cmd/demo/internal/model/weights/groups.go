package weights

// GroupSize is how many numbers of a row share a scale in Groups.
const GroupSize = 32

// Groups is a tensor whose type has one scale for 32 numbers of a row, as the
// file has it: number i, of group g = i/32, is
//
//	Scales[g] · (Numbers[i] − Offset) + Minima[g]
//
// which Tensor.Numbers rounds to float32 and a matrix product need not.
type Groups struct {
	Bits    int // of a number: 4 or 8
	Offset  int // 0, or half of the range of numbers
	Numbers []uint8
	Scales  []float32
	Minima  []float32 // nil: 0
}

// grouping reads the groups of one block of a type.
type grouping struct {
	bits, offset int
	minima       bool
	read         func(numbers []uint8, scales, minima []float32, block []byte)
}

// groupings are by type. Q6_K has a scale for 16 numbers and none here.
var groupings = map[Type]grouping{
	Q8_0: {8, 128, false, groupsQ8_0},
	Q4_0: {4, 8, false, groupsQ4_0},
	Q4_1: {4, 0, true, groupsQ4_1},
	Q4_K: {4, 0, true, groupsQ4_K},
}

// Groups gives the groups of a tensor, and false if its type has none.
func (t *Tensor) Groups() (*Groups, bool) {
	kind, ok := groupings[t.Type]
	if !ok {
		return nil, false
	}
	n, f := t.Len(), formats[t.Type]
	g := &Groups{Bits: kind.bits, Offset: kind.offset, Numbers: make([]uint8, n),
		Scales: make([]float32, n/GroupSize)}
	if kind.minima {
		g.Minima = make([]float32, n/GroupSize)
	}
	for i, block := 0, t.bytes; i < n; i += f.numbers {
		first, end := i/GroupSize, (i+f.numbers)/GroupSize
		var minima []float32
		if kind.minima {
			minima = g.Minima[first:end]
		}
		kind.read(g.Numbers[i:i+f.numbers], g.Scales[first:end], minima, block)
		block = block[f.bytes:]
	}
	return g, true
}

// groupsQ8_0 makes the int8 numbers unsigned: adding 128 turns the upper bit over.
func groupsQ8_0(numbers []uint8, scales, _ []float32, b []byte) {
	scales[0] = half(b)
	for i, q := range b[2:34] {
		numbers[i] = q ^ 0x80
	}
}

func groupsQ4_0(numbers []uint8, scales, _ []float32, b []byte) {
	scales[0] = half(b)
	nibbles(numbers, b[2:18])
}

func groupsQ4_1(numbers []uint8, scales, minima []float32, b []byte) {
	scales[0], minima[0] = half(b), half(b[2:])
	nibbles(numbers, b[4:20])
}

func groupsQ4_K(numbers []uint8, scales, minima []float32, b []byte) {
	d, dmin := half(b), half(b[2:])
	for i := range scales {
		scale, minimum := sixBits(i, b[4:16])
		scales[i], minima[i] = float32(d*scale), -float32(dmin*minimum)
	}
	for pair := range len(scales) / 2 {
		nibbles(numbers[64*pair:], b[16+32*pair:48+32*pair])
	}
}

// nibbles unpacks the lower halves of the bytes, then the upper ones.
func nibbles(numbers []uint8, b []byte) {
	for i, q := range b {
		numbers[i], numbers[len(b)+i] = q&15, q>>4
	}
}
