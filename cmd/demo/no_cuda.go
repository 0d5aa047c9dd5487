//go:build !cuda

package main

// linked reports whether NVIDIA devices are linked in: they bring the dynamic
// loader with them, so only who asks for them gets them.
const linked = false
