package cuda

import "github.com/kvactor/kvactor/gpu"

// Options of a device. UUID, as nvidia-smi prints it, goes before Ordinal.
type Options struct {
	Ordinal int // which of the devices that the process sees, from 0
	UUID    string
	// Trace is told of each batch of copies after it has ended, by a later Submit or Fence
	// on any stream and at the latest by Close; nil: nothing is measured. It is called with the
	// device locked: it must neither call the device nor block. A batch that is measured costs
	// two records of events and, when it has ended, two questions for their times. Batches
	// whose copies were refused, and those beyond 256 under way, are not told of.
	Trace func(gpu.Transfer)
}

// init makes gpu.Open know "cuda" in every program that imports the package.
func init() {
	gpu.Register("cuda", func(s gpu.Spec) (gpu.Device, error) {
		return Open(Options{Ordinal: s.Ordinal, UUID: s.UUID, Trace: s.Trace})
	})
}
