//go:build !linux || !(amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"

	"github.com/kvactor/kvactor/gpu"
)

// Open answers gpu.ErrNoDriver: this system is not supported.
func Open(Options) (gpu.Device, error) {
	return nil, fmt.Errorf("cuda: %s/%s: %w", runtime.GOOS, runtime.GOARCH, gpu.ErrNoDriver)
}
