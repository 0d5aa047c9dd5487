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
package messages
