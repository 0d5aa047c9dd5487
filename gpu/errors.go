package gpu

import (
	"errors"
	"fmt"
)

// Errors of a device.
var (
	ErrNoDriver    = errors.New("gpu: no driver")
	ErrOutOfMemory = errors.New("gpu: out of memory")
	ErrCopyFailed  = errors.New("gpu: copy failed")
	ErrDeviceLost  = errors.New("gpu: device lost")
	ErrClosed      = errors.New("gpu: device is closed")
	ErrInUse       = errors.New("gpu: in use")
)

// Error states which copy failed and why.
func (e *CopyError) Error() string {
	return fmt.Sprintf("copy %d, %s: %v", e.Index, e.Copy.Where(), e.Err)
}

// Unwrap gives the cause.
func (e *CopyError) Unwrap() error { return e.Err }
