package bench

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime is the time that the calling thread has had on a core. A goroutine that
// compares two of them is locked to its thread.
func threadTime() time.Duration {
	const ofThread = 3 // CLOCK_THREAD_CPUTIME_ID, which package syscall does not name
	var used syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, ofThread, uintptr(unsafe.Pointer(&used)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(used.Nano())
}
