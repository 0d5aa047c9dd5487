package main

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// simulated is the device that the demo's hosts can compute on.
const simulated = "sim"

// openDevice tells why the demo cannot run on a device: it is not linked in,
// the machine has none, or it cannot run the hosts' kernels, which are Go.
func openDevice(name string) error {
	if name == simulated {
		return nil
	}
	device, err := gpu.Open(name, gpu.Spec{})
	if err != nil {
		if name == "cuda" && !linked {
			err = fmt.Errorf("%w: gpu/cuda is not linked in, build with -tags cuda", gpu.ErrNoDriver)
		}
		return fmt.Errorf("device %s: %w", name, err)
	}
	_, launches := device.(gpu.Launcher)
	if err := device.Close(); err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	if !launches {
		return fmt.Errorf("device %s: %w", name, errGoKernels)
	}
	return nil
}

var errGoKernels = errors.New("it was opened, but the demo's hosts compute in Go, which the simulated device alone can run")
