package pool

import "unsafe"

// bytes is the memory of the pieces, without that of the policy, which forecast.Policy.Bytes counts. It is in
// proportion to the pieces, of which there is at most one for each page that caches a block; lists keep the room
// that they once took.
func (s *pieces) bytes() int {
	n := bytesOf(s.all) + bytesOf(s.uses) + bytesOf(s.details) + bytesOf(s.terms)
	s.orders.each(func(o *order) {
		for _, g := range o.groups {
			if g == nil {
				continue
			}
			for k := range g {
				n += bytesOf(g[k].leaves) + bytesOf(g[k].inner)
				if g[k].front != nil {
					n += int(unsafe.Sizeof(*g[k].front))
				}
			}
		}
		for k := range o.terms.all {
			n += bytesOf(o.terms.all[k].pieces)
		}
	})
	if s.checkpoints != nil {
		n += bytesOf(s.checkpoints.of)
	}
	return n + bytesOf(s.peeked)
}

// bytesOf is the memory of a list.
func bytesOf[T any](list []T) int {
	var one T
	return cap(list) * int(unsafe.Sizeof(one))
}
