//go:build linux

// Package memfd makes memory that other processes can map.
package memfd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// create is the number of the system call memfd_create by processor; package syscall
// has it for some only.
var create = map[string]uintptr{
	"386": 356, "amd64": 319, "arm": 385, "arm64": 279,
	"loong64": 279, "ppc64le": 360, "riscv64": 279, "s390x": 350,
}

// Numbers of the system's interface that package syscall lacks.
const (
	closeOnExec  = 1    // MFD_CLOEXEC
	allowSealing = 2    // MFD_ALLOW_SEALING
	addSeals     = 1033 // F_ADD_SEALS
	getSeals     = 1034 // F_GET_SEALS
	sealSeal     = 1    // F_SEAL_SEAL
	sealShrink   = 2    // F_SEAL_SHRINK
	sealGrow     = 4    // F_SEAL_GROW
)

// Create makes a file of so many bytes in memory. It has no name in any file system, and
// its memory goes with its last user. Nobody can change its size: a process that maps
// it cannot take bytes from under another, which would die of it.
func Create(name string, bytes int64) (*os.File, error) {
	number, ok := create[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("memfd: not known for %s", runtime.GOARCH)
	}
	text, err := syscall.BytePtrFromString("kvactor " + name)
	if err != nil {
		return nil, err
	}
	// The name is for /proc only and need not be unique.
	fd, _, errno := syscall.Syscall(number, uintptr(unsafe.Pointer(text)), closeOnExec|allowSealing, 0)
	if errno != 0 {
		return nil, fmt.Errorf("memfd: %w", errno)
	}
	file := os.NewFile(fd, "kvactor "+name)
	if err := file.Truncate(bytes); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	const seals = sealSeal | sealShrink | sealGrow
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, addSeals, seals); errno != 0 {
		return nil, errors.Join(fmt.Errorf("memfd: seals: %w", errno), file.Close())
	}
	return file, nil
}

// Check refuses a file of another process that has fewer bytes, or could have fewer
// later.
func Check(f *os.File, bytes int64) error {
	facts, err := f.Stat()
	if err != nil {
		return err
	}
	if facts.Size() < bytes {
		return fmt.Errorf("memfd: a file of %d bytes, %d are needed", facts.Size(), bytes)
	}
	seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), getSeals, 0)
	if errno != 0 {
		return fmt.Errorf("memfd: seals: %w", errno)
	}
	if seals&sealShrink == 0 {
		return errors.New("memfd: the file is not sealed against shrinking")
	}
	return nil
}

// Duplicate is another descriptor of a file, closed in programs that are started.
func Duplicate(f *os.File) (*os.File, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, fmt.Errorf("memfd: duplicate: %w", errno)
	}
	return os.NewFile(fd, f.Name()), nil
}
