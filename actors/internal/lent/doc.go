// Package lent checks that a lent record is left alone by its owner.
//
// The actors of an engine exchange pointers to records that are used again and
// again. A record belongs to its owner until the owner sends it, to the receiver
// until the receiver sends it back, and then to the owner again. Nothing in Go
// enforces that: an owner that reads a record too early sees half an answer, one
// that writes to it changes what the receiver computes, and when both run on one
// goroutine the race detector sees nothing.
//
// With the build tag poison a Ledger makes such a mistake visible. Lend keeps the
// record and gives the receiver a copy:
//
//	owner                    ledger                       receiver
//	  │ Lend(to, record) ──────▶ copy ───────────────────────▶ reads, writes
//	  │ record: poison          │                              │
//	  │   read: the program     │                              │
//	  │   crashes, or garbage   │                              │
//	  │   write: found by       ◀──────────────────────── copy │
//	  ◀─────── Return(copy)     │ record = copy's contents     │
//	                            │
//	    next Lend to the same receiver: the copy's arrays become garbage
//
// While a record is lent, its own fields are poison: each slice and pointer leads
// to memory that cannot be read, each number is a pattern. The arrays behind its
// slices stay as they are, since several records may share them (page tables,
// prompts); the ledger keeps an image of them and compares it when the record
// comes back, so that a write is found, too. A copy that has come back becomes
// garbage with the next record that its receiver gets, which finds receivers that
// keep what they were lent.
//
// A mistake ends the program: a panic would be caught by the actors' supervisor
// and look like a failure that the engine recovers from.
//
// Without the tag every function here does nothing and costs nothing.
package lent
