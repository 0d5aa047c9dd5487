// Package protocol defines the messages between the actors of one engine. No host sends or receives
// them: a host's messages are in package messages.
//
// A message is a pointer to a record that its sender owns. From sending until the
// receiver has sent the same record back, with the answers filled in, the record
// and all its slices belong to the receiver, and the sender touches nothing in it.
// The sender then uses the record again, so a record that has grown once
// allocates nothing.
//
//	coordinator            tree      pools      offloader    events
//	 │ Match ──────────────▶│          │           │           │
//	 │◀───────────── Match  │          │           │           │
//	 │ PoolWork: claim ────────────────▶│          │           │
//	 │◀────────────────────── PoolWork │           │           │
//	 │ PoolWork: take ─────────────────▶│          │           │
//	 │◀────────────── PoolWork victims │           │           │
//	 │ Move ───────────────────────────────────────▶│          │
//	 │◀──────────────────── Move: outcomes, tickets │          │
//	 │ Apply ──────────────▶│ ── events ───────────────────────▶│
//	 │◀──── Apply: effects  │          │           │           │
//	 │ PoolWork: effects ──────────────▶│          │           │
package protocol
