// Package coordinator is the core of the actor that orders everything: it holds
// the sequences, serves one request at a time, and alone sends messages that
// change the tree, the pools and the offloader. It is plain and single-threaded.
// Submit and Answered are its ways in, Port is its way out, and in between it
// never waits: a stage sends, names the stage that follows, and returns.
//
//	Submit ─▶ line ─▶ round ─▶ stage ─▶ messages ─▶ … Answered ─▶ stage ─▶ … ─▶ Reply
//	                             │ pending: answers that are still to come;
//	                             │ next:    the stage that runs when there are none
//
// # Stages
//
// An admission, and what goes a part of its way:
//
//	match ─▶ claim ─▶ judge ─▶ take ─▶ move ─▶ apply ─▶ effects ─▶ answer
//	           ▲        │
//	           └─ again ┘  without partial reuse, when no page is there for the copy
//
//	lookup, rehearsal: to judge, then all claims are given back
//	prefetch:          all the way, then all pages are let go
//	pin:               match, then pins in place of claims
//
// An engine step (append) and a commit:
//
//	[inspect ─▶ take ─▶ move ─▶] store ─▶ effects, dropped windows, next chunks ─▶ answer
//
// A release offers what is computed once more and drops pages; a rebalance resizes
// the pools, moves what lies beyond their ends, and then the device's memory.
//
// # All or nothing
//
// Each pool's answer carries its counts, and nobody else changes them; so the
// coordinator knows, before it takes a page, that the page will be there:
//
//	available = total − held − reserved − promised to items judged before
//
// held counts what sequences and pins hold, reserved what chunked prefills may
// still need. A request that fits cannot fail afterwards, and one that is refused
// gives back its claims and has changed nothing. What may fail is a copy that the
// device refuses: an admission is then matched and judged again with what is left,
// a step whose copy on write failed is taken back.
//
// # A batch
//
// All items are matched on one state and claimed before any page is taken, so that
// none can evict what another has matched. Then they are judged in order. Pages are
// taken in three parts, of all items each: those for partial copies while their
// sources are held, then the sources are let go, then all others.
//
//	claims of 1, 2, 3 │ copy pages of 1, 2, 3 │ sources go │ pages of 1, 2, 3
//
// What two items want from host memory the first of them brings in.
//
// # Sequences
//
//	tokens    ├─────────── prompt ───────────┤── generated ──┤
//	computed  ├──────────────────────────────────────┤  their KV is in the pages
//	kept      ······├───────  a limited window begins here; before it, sinks apart,
//	                          there are no pages any more
//	own       ············├─  reused whole before, the sequence's own from here on
//	sealed    ─────────────────────────┤  others may hold the blocks before it too
//
// Every entry of every table that is not NoPage is one reference in the pool. A
// page below sealed is asked about before it is written to, and copied if anyone
// else holds it; above it the sequence is alone, and nothing is asked.
//
// # Recovery
//
// When an actor has failed, the round is undone in the sequences, the epoch ends,
// answers that still come are nobody's; pools and host memory are rebuilt from the
// tables, the pins and the tree; then the round is served once more. The
// coordinator's own sequences are the truth, so they are changed last: settled
// says that the round has come so far that it need only be answered.
//
// # Cost
//
// A stage is a message to each actor that has something to do and none to the
// others. A request allocates nothing once its records have grown, except where it
// is rare: forks, pins, beams, multimodal items, failures.
package coordinator
