package cuda

import "github.com/kvactor/kvactor/gpu"

// Options of a device. UUID, as nvidia-smi prints it, goes before Ordinal.
type Options struct {
	Ordinal int // which of the devices that the process sees, from 0
	UUID    string
}

// init makes gpu.Open know "cuda" in every program that imports the package.
func init() {
	gpu.Register("cuda", func(s gpu.Spec) (gpu.Device, error) {
		return Open(Options{Ordinal: s.Ordinal, UUID: s.UUID})
	})
}
