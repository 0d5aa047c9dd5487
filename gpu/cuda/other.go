//go:build !linux || !(amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"

	"github.com/kvactor/kvactor/gpu"
)

// Options of a device.
type Options struct {
	Ordinal int
}

func init() {
	gpu.Register("cuda", func(s gpu.Spec) (gpu.Device, error) { return Open(Options{Ordinal: s.Ordinal}) })
}

// Open answers gpu.ErrNoDriver: this system is not supported.
func Open(Options) (gpu.Device, error) {
	return nil, fmt.Errorf("cuda: %s/%s: %w", runtime.GOOS, runtime.GOARCH, gpu.ErrNoDriver)
}
