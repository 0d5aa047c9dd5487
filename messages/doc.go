// Package messages holds the words of the cache and the conversation between
// its actors. It imports the standard library only; everything else imports it.
//
// A message is a pointer to a record. The sender owns the record and all its
// slices until it sends; the receiver owns them until it sends the same record
// back with the answers filled in. Records are reused, so nothing is allocated
// once they have grown.
//
//	host        coordinator            tree      pools      offloader    events
//	 │ request ──▶│                      │          │           │           │
//	 │            │ Match ──────────────▶│          │           │           │
//	 │            │◀───────────── Match  │          │           │           │
//	 │            │ PoolWork: claim ────────────────▶│           │           │
//	 │            │◀────────────────────── PoolWork │           │           │
//	 │            │ PoolWork: take ─────────────────▶│           │           │
//	 │            │◀────────────── PoolWork victims │           │           │
//	 │            │ Move ───────────────────────────────────────▶│           │
//	 │            │◀──────────────────── Move: outcomes, tickets │           │
//	 │            │ Apply ──────────────▶│ ── Publish ──────────────────────▶│
//	 │            │◀──── Apply: effects  │          │           │           │
//	 │            │ PoolWork: effects ──────────────▶│           │           │
//	 │◀─ answer ──│                      │          │           │           │
//
// # What is a host's
//
// A host sends these, by pointer, to Engine.Do, Engine.Submit or Engine.PID, and
// the methods of actors.Engine do it for those who would rather call:
//
//	sequences   Admit, Commit, Append, Rewind, Fork, Release, ReadTables, Rehearse
//	the cache   Lookup, Prefetch, PinPrefix, UnpinPrefix, Invalidate, Reset
//	memory      Rebalance, ReadStats, ReadScales, WriteScales
//	mirrors     ReadEvents, ReadSnapshot
//	trying out  Check, ReadContents
//
// It receives them back answered, or in an Aborted, and may watch the actor
// system's event stream for a Restarted. Everything else here is between actors of
// the engine; from others it is refused.
package messages
