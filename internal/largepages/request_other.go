//go:build !linux

package largepages

import "unsafe"

// request does nothing: these systems choose the size of memory pages by themselves.
func request(unsafe.Pointer, uintptr) {}
