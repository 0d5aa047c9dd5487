// Package radix orders items by a number, in time linear in their count.
package radix

// digitBits is the size of a digit: 256 buckets fit the first cache level.
const digitBits = 8

// Order gives the order of items by ascending key; it is stable. It keeps its
// memory for the next call. The zero value is ready.
type Order struct {
	order, other []int32
}

// By returns the indices of keys in ascending order of the keys. The slice is
// valid until the next call. Only digits in which keys differ cost a pass: two
// or three for pages of a pool. Keys that are in order cost none.
func (o *Order) By(keys []uint64) []int32 {
	o.order, o.other = grow(o.order, len(keys)), grow(o.other, len(keys))
	sorted, differ := true, uint64(0)
	for i, k := range keys {
		o.order[i] = int32(i)
		differ |= k ^ keys[0]
		sorted = sorted && (i == 0 || keys[i-1] <= k)
	}
	if sorted {
		return o.order
	}
	for shift := 0; differ>>shift != 0; shift += digitBits {
		if byte(differ>>shift) != 0 {
			o.pass(keys, shift)
		}
	}
	return o.order
}

// pass orders by one digit and leaves items with the same digit as they are.
func (o *Order) pass(keys []uint64, shift int) {
	var next [1 << digitBits]int32
	for _, k := range keys {
		next[byte(k>>shift)]++
	}
	at := int32(0)
	for d, n := range next {
		next[d], at = at, at+n
	}
	for _, i := range o.order {
		d := byte(keys[i] >> shift)
		o.other[next[d]] = i
		next[d]++
	}
	o.order, o.other = o.other, o.order
}

func grow(list []int32, n int) []int32 {
	if cap(list) < n {
		return make([]int32, n)
	}
	return list[:n]
}
