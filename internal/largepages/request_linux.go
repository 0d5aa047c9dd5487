package largepages

import (
	"syscall"
	"unsafe"
)

// hugePages is MADV_HUGEPAGE, which package syscall does not name on every architecture.
const hugePages = 14

// request asks the system to back memory by large pages. A kernel without them refuses,
// and the memory is then as it was: there is nothing to do about the error.
func request(memory unsafe.Pointer, bytes uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(memory), bytes, hugePages)
}
