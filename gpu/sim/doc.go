// Package sim simulates a device: real bytes, virtual time, and schedules that expose ordering
// mistakes.
//
// # Time
//
// The device has its own clock, which stands still until a caller waits: Sync moves it to the
// moment its ticket passes, Advance moves it by a given time, and Drain until nothing is left to
// do. In between, Submit and Launch only queue. The timing model of the device's Profile gives each
// operation a time of submission, of start and of end:
//
//	submit ──(call cost)──▶ waits met, stream's turn, engine free ──▶ start
//	start ──(setup + descriptors + bytes, slower while both directions run)──▶ end
//
// There is one engine for each direction (offload, onboard, copy). Kernels need
// no engine and last as long as they say.
//
// # Bytes
//
// A copy moves its bytes when time passes its end, not when it is submitted: its source is read as
// late as the ordering allows. When it starts, its destination is filled with 0xDB; new pages hold
// 0xDD. So a page that is reused too early, or read before its copy has ended, gives wrong bytes,
// never right ones by luck. The goroutine that moves time copies the bytes with no lock held that a
// submission needs; only Close and Lose wait for it. A Seed stretches and delays operations within
// what a real device may do; a program with all its waits gives the same bytes with every seed.
//
// # Kernels
//
// Launch queues a Go function. It runs once, in the goroutine that moves time
// (in Sync, Advance or Drain, or in a Submit that finds the queues full), with
// no lock held that a submission needs: it may Submit, Launch, Fence, Wait and
// ask Done on the device, but not Sync, Advance or Drain, which would wait for
// itself.
//
// # Limits
//
// At most Config.MaxPending copies and operations are queued; a submission beyond that first runs
// the oldest work, which moves time.
package sim
