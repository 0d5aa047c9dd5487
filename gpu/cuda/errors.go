//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// result is a CUresult.
type result int32

// Results that decide something.
const (
	success         result = 0
	outOfMemory     result = 2
	stubLibrary     result = 34
	noDevice        result = 100
	notReady        result = 600
	unknown         result = 999
	systemNotReady  result = 802
	driverMismatch  result = 803
	notSupportedFwd result = 804
)

// sticky are the results after which a context answers nothing else.
func (r result) sticky() bool {
	switch r {
	case 214, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 721:
		return true
	}
	return false
}

// DriverError is a refusal of the driver. It unwraps to the error of package
// gpu that it amounts to, if any.
type DriverError struct {
	Call string // the exported name of the function
	Code int32
	Name string // the driver's name of the code
	On   string // what it was about: a pool, a page, a stream
}

// Error names call, code and subject.
func (e *DriverError) Error() string {
	return fmt.Sprintf("cuda: %s: %s (%d), %s", e.Call, e.Name, e.Code, e.On)
}

// Unwrap gives the error of package gpu.
func (e *DriverError) Unwrap() error {
	switch r := result(e.Code); {
	case r == outOfMemory:
		return gpu.ErrOutOfMemory
	case r.sticky():
		return gpu.ErrDeviceLost
	case r == stubLibrary, r == noDevice, r == driverMismatch, r == systemNotReady, r == notSupportedFwd:
		return gpu.ErrNoDriver
	}
	return nil
}

// failure makes the error of a call, nil for success.
func (d *Device) failure(f fn, r result, on string) error {
	if r == success {
		return nil
	}
	e := &DriverError{Call: f.String(), Code: int32(r), Name: d.errorName(r), On: on}
	if r.sticky() && d.err == nil {
		d.err = fmt.Errorf("%w: %w", gpu.ErrDeviceLost, e)
	}
	return e
}

func (d *Device) errorName(r result) string {
	d.out.name = nil
	if d.driver.call(fnGetErrorName, uintptr(r), address(&d.out.name)) != success || d.out.name == nil {
		return "unnamed error"
	}
	const longest = 128
	var name []byte
	for i := range longest {
		c := *(*byte)(unsafe.Add(unsafe.Pointer(d.out.name), i))
		if c == 0 {
			break
		}
		name = append(name, c)
	}
	return string(name)
}
