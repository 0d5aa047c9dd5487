//go:build unix

package wire

import (
	"os"
	"syscall"
)

// mapFile maps a file for reading and writing.
func mapFile(f *os.File, bytes uint64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
}
