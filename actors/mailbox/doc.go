// Package mailbox makes protoactor-go fast enough for a cache that answers in
// a microsecond: a mailbox and its dispatchers.
//
// # Why
//
// The library starts a goroutine for each wake-up of an actor, and that goroutine's small stack is
// copied as soon as Receive sends something on. A request through four actors then costs about 15
// µs. The library lets a program replace the mailbox and the dispatcher. The actors stay ordinary
// ones: spawned, named, supervised, watched and stopped by the library.
//
// # Inline
//
// An idle actor runs on the goroutine of its sender:
//
//	host goroutine                                 worker goroutine
//	  Send(a, x) ─▶ a idle: a.Receive(x)
//	                  Send(b, y) ─▶ b idle: b.Receive(y)
//	                                  Send(a, z) ─▶ a busy: queued
//	                ◀──────────────── b idle again
//	                a.Receive(z)
//	  …budget used up, more is queued ───────────▶ a goes on here
//	◀─ Send returns
//
// So in the common case a request has been answered when Send returns, and no goroutine was woken.
// This has consequences:
//
//   - A sender holds no lock that a Receive may want.
//   - A message to a busy actor is queued, so a → b → a never nests an actor in
//     itself, and the stack is never deeper than there are actors.
//   - Receive may run on any goroutine. Code that is bound to a thread doesn't belong in such an
//     actor; give it its own Worker with Queued.
//   - A sender serves a limited number of others' messages, its budget; then a Worker takes over.
//     Without a budget, one sender can be kept busy for seconds under load.
//
// # Order and failure
//
// Messages of one sender are received in the order of sending. System messages (stop, suspend,
// watch, …) come before user messages. While the library holds an actor suspended, between a panic
// and the supervisor's decision, user messages wait. A panic costs only the message it happened on;
// the rest of the queue survives the restart. The supervisor is given a *Panic, which has the
// stack. A nil message panics at its sender: the library's own mailbox would spin on it for ever.
//
// # Every message is received or aborted
//
// A stopped actor of the library drops its queue silently. Here each message that can no longer be
// received is aborted: when its actor is stopped, when Receive panicked on it, and, with
// AbortDeadLetters, when the actor no longer exists. The mailbox calls the message's method
// Abort(error), or, for a message that has none, the mailbox's OnAbort function.
//
// # Simulation
//
// With Queued(scheduler) nothing runs inline: a Scheduler collects the actors
// that have something to do and has one of them receive one message at each
// Step, chosen by a seed. The same program then runs through as many
// interleavings as there are seeds, and each can be replayed.
//
// # Cost
//
// A request and its answer, an atomic flag in the request, cost about 80 ns, a
// further hop 65 ns; nothing is allocated, and half of the time is the mailbox's lock.
// The library's default needed 2.7 µs and 2.7 µs in the same run on a busy machine;
// bench_test.go compares them.
package mailbox
