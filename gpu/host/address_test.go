package host_test

import "unsafe"

// address is where a slice lies.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
