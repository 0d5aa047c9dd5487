//go:build cuda

package main

import _ "github.com/kvactor/kvactor/gpu/cuda" // registers itself

// linked reports whether NVIDIA devices are linked in.
const linked = true
