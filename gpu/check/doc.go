// Package check finds missing order. It wraps a device and reports each access
// to a page that nothing orders after the accesses before it, even when the
// bytes happen to come out right.
//
// The actors are the streams and the host. For each actor a the checker keeps a
// vector clock: clock[a][b] is the newest operation of b that a comes after.
//
//	Submit on s   s learns what the host knows, then what the batch waits for;
//	              the batch is one operation of s
//	Launch on s   likewise, with the accesses that the kernel declares
//	Wait on s     s learns what the tickets cover
//	Sync, Done    the host learns what the ticket covers, once it has passed
//
// A ticket covers what its stream knew at its operation. For each range of a page the checker keeps
// the last write and the reads since. A read must come after the last write; a write must come
// after the last write and all reads. Reuse of a page is a write by its next owner, so a page given
// away while a copy still reads it shows up as a write that nothing orders after that read. A read
// of bytes that nothing has written is also reported, except by a copy within the device: the bytes
// it writes then count as unwritten.
//
// Ranges of bytes are separate: copies of different tokens of a page don't conflict. Host code that
// touches host pages opens a scope with HostRead or HostWrite and ends it; the race detector checks
// the host's goroutines against each other.
//
// The cost is below 100 ns for an access to a whole page (BenchmarkCheck, on a small virtual
// machine). A kernel that a simulated device runs inside Submit, because its queues are full, must
// not call the checker.
package check
