package bench

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime is the time that the calling thread has had on a core. A goroutine that
// compares two of them is locked to its thread.
func threadTime() time.Duration { return clock(3) }

// processTime is the time that the threads of the process have had on cores.
func processTime() time.Duration { return clock(2) }

// clock reads CLOCK_PROCESS_CPUTIME_ID (2) or CLOCK_THREAD_CPUTIME_ID (3), which package
// syscall does not name.
func clock(id uintptr) time.Duration {
	var used syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&used)),
		0); errno != 0 {
		panic(errno)
	}
	return time.Duration(used.Nano())
}
