//go:build !linux

package host

// region is the memory of one tier of a pool: here one piece of Go's heap, which the
// system backs as far as it is touched.
type region struct {
	bytes []byte
	given bool // the memory is the host application's
}

// reserve takes memory of a pool's largest size. Shared memory is refused.
func reserve(_ string, space int64, shared bool) (region, error) {
	if shared {
		return region{}, ErrNotShared
	}
	return region{bytes: make([]byte, space)}, nil
}

// commit does nothing: all of the memory can be used.
func (r *region) commit(int64) error { return nil }

// shrink clears the bytes [to, from): if they are used again, they are zero.
func (r *region) shrink(to, from int64) error {
	clear(r.bytes[to:from])
	return nil
}

// release drops the memory.
func (r *region) release() error {
	*r = region{}
	return nil
}

// systemMemory stands for the machine's memory, which the standard library does not tell.
func systemMemory() int64 { return machineMemory }
