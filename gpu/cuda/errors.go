//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// Errors of this package beyond those of package gpu.
var (
	// ErrCapturing: the stream is being captured into a graph. Work that was
	// queued on it now would run with each launch of the graph, and not before.
	ErrCapturing = errors.New("cuda: the stream is being captured into a graph")
	// ErrDefaultStream: batch copies refuse the default stream, and the
	// per-thread default stream is another one on each thread of a Go program.
	ErrDefaultStream = errors.New("cuda: a default stream")
	// ErrAdopted: the pool's memory is the host application's.
	ErrAdopted = errors.New("cuda: the memory is the host application's")
	// ErrNotShared: the pool was not created with PoolSpec.Shared, or the device has no
	// such memory.
	ErrNotShared = errors.New("cuda: the pool was not created to be shared")
)

// result is a CUresult.
// Its values are those of cuda.h.
type result int32

// Results that decide something.
const (
	success      result = 0
	invalidValue result = 1
	outOfMemory  result = 2
	stubLibrary  result = 34
	noDevice     result = 100
	notReady     result = 600
	notSupported result = 801
	// 802 to 804 come from cuInit: driver and library, or driver and device, do not fit.
	systemNotReady  result = 802
	driverMismatch  result = 803
	notSupportedFwd result = 804
	firstCapture    result = 900 // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
	capturedEvent   result = 907
	lastCapture     result = 908 // CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
)

// sticky tells whether a context answers nothing else from now on: the codes of
// which the header says that the process must be restarted or that the context
// or the driver is gone, and those of hardware that has lost data (214, 220).
// 708 only says that the primary context was active before.
func (r result) sticky() bool {
	switch r {
	case 4, // the driver is shutting down
		214, 220, 226,
		700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721,
		810, 911:
		return true
	}
	return false
}

// capture tells whether a call was refused because of a stream capture.
func (r result) capture() bool { return r >= firstCapture && r <= lastCapture }

// DriverError is a refusal of the driver. It unwraps to the error of package
// gpu or of this package that it amounts to, if any.
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

// Unwrap returns the error that the code amounts to.
// Codes that are a mistake of this package or of the host amount to none.
func (e *DriverError) Unwrap() error {
	switch r := result(e.Code); {
	case r == outOfMemory:
		return gpu.ErrOutOfMemory
	case r.sticky():
		return gpu.ErrDeviceLost
	case r.capture():
		return ErrCapturing
	case r == stubLibrary, r == noDevice, r == driverMismatch, r == systemNotReady,
		r == notSupportedFwd:
		return gpu.ErrNoDriver
	}
	return nil
}

// failure makes the error of a call, nil for success. After a sticky code the
// device is lost.
// The text names the function, the code and what the call was about, for a log that is all
// that is left of a process.
func (s *session) failure(f fn, r result, on string) error {
	if r == success {
		return nil
	}
	e := &DriverError{Call: f.String(), Code: int32(r), Name: s.errorName(r), On: on}
	if r.sticky() {
		s.d.markLost(e)
	}
	return e
}

// errorName asks the driver for the name of a code. Headers and drivers of different
// versions know different codes, so the names are not kept here.
func (s *session) errorName(r result) string {
	s.out.name = nil
	if s.call(fnGetErrorName, uintptr(r), address(&s.out.name)) != success || s.out.name == nil {
		return "unnamed error"
	}
	// The name is the driver's memory, ended by a zero byte; the bound is for a driver that
	// forgets it.
	const longest = 128
	var name []byte
	for i := range longest {
		c := *(*byte)(unsafe.Add(unsafe.Pointer(s.out.name), i))
		if c == 0 {
			break
		}
		name = append(name, c)
	}
	return string(name)
}
