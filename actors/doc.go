// Package actors is the engine that a host embeds: Spawn starts it, the methods
// of Engine are all there is to call. Underneath it is a family of isolated
// actors that exchange the records of package messages; the packages that decide
// (tree, pool, offloader, events and actors/coordinator) are plain cores that
// know nothing of actors. What is here receives, calls its core and sends on.
//
// # The actors
//
//	 host goroutines           a host that is an actor
//	  │ Engine.Admit(ctx, …)        │ ctx.Request(engine.PID(), &messages.Admit{…})
//	  ▼                             │
//	 gate: bounds the calls         │
//	  └───────────────┬─────────────┘
//	                  ▼
//	NAME          parent and supervisor; receives nothing else
//	├── coordinator  ◀── every request: a queue, and one round at a time
//	├── tree             which block is stored, and where each pool keeps it
//	├── pool:w1024h8     device pages of one pool: who holds them, what goes first
//	├── pool:wfullh8     one for each attention window and KV head count
//	├── offloader ──▶    host memory, and the order of all copies:
//	│                    device streams offload, onboard (two), copy
//	└── events           the log of changes; a slow reader loses, and is told
//
// An engine for an encoder–decoder model is two such families, of the decoder and
// of the encoder's cross attention, behind one actor that joins them (actors/cross).
//
// # What each actor alone may change
//
//	coordinator  sequences: tokens, page tables, reserves; the handles of pins;
//	             scales of 8-bit elements
//	tree         blocks: tokens, priority, timer, session, and in which page of
//	             which tier each pool keeps them
//	pool         references, pins and the order of eviction of its device pages
//	offloader    host pages, and who touched which page last on the device
//	events       the log and the numbers of its events
//
// Only the coordinator sends messages that change another one's state. So there
// is nothing to repair between actors: no retry, no stale reference, no lock.
//
// # Rounds
//
// The coordinator serves one request at a time, in a round, and what comes
// meanwhile queues. A batch is one request: AdmitBatch, Commit, Append and Release
// of many sequences cost the messages of one. No stage of a round waits for the
// device, the clock or the host; order among copies and kernels is made on the
// device's streams. Two things wait beside the round: a rebalance for the memory
// to move, a recovery for the copies under way to end.
//
// # The life of a request
//
//	host               gate        coordinator        tree   pools   offloader
//	 │ Admit            │              │                │      │         │
//	 │─────────────────▶│ inside, or   │                │      │         │
//	 │                  │ waits, or    │                │      │         │
//	 │                  │ ErrBusy      │                │      │         │
//	 │                  │──── call ───▶│ queued         │      │         │
//	 │                  │              │ begun          │      │         │
//	 │                  │              │─── match ─────▶│      │         │
//	 │                  │              │─── claim ────────────▶│         │
//	 │                  │              │ judge: all or nothing, item by item
//	 │                  │              │─── take ─────────────▶│         │
//	 │                  │              │─── move ───────────────────────▶│ submits
//	 │                  │              │─── apply ─────▶│      │         │
//	 │                  │              │─── effects ──────────▶│────────▶│
//	 │◀──────────── answer ────────────│                │      │         │
//	 │ waits for Ready on its stream, computes, Commit(After: its kernel) …
//
// A call whose context ends while it waits at the gate or is queued has started
// nothing. One that has begun is answered, whatever its context does: otherwise
// its caller would not know what it holds.
//
// Every accepted call is answered: served, refused, cancelled by its context, or
// aborted because an actor or the engine has ended. A refusal is a
// *messages.Refusal and has changed nothing; errors.Is knows the Err… values of
// package messages. In a batch each item has its own.
//
// # What a restart loses
//
// A panic of an actor is a bug of the engine. The actor is restarted, and before
// the next request the coordinator rebuilds all pools and host memory from the
// owners of their pages: its sequences and pins, and the tree. The round that it
// happened in is served once more. Lost is what was being changed:
//
//	pool         nothing
//	tree         within a change: all that is stored, and pins; sequences go on
//	offloader    within a change: contents in host memory, and blocks on the
//	             device pages that it was about to write to
//	coordinator  within a round: the sequences that the round has touched, which
//	             answer ErrSequenceLost
//	join         within a stage: the sequences that the round steps
//	events       events, as does a reader's batch that could not be named; a
//	             snapshot puts a mirror right
//
// After too many failures in a short time (WithRestartLimit) the engine has
// failed: every call says ErrFailed with the cause, Close still gives the memory
// back.
//
// # Costs
//
// An idle actor runs on the goroutine of whoever sends to it (package mailbox),
// so an uncontended call is answered on the caller's own goroutine: tens of
// nanoseconds a hop (package mailbox has the measurements), no goroutine woken,
// nothing allocated by Do with records that are used again. An admission costs a
// comparison of the prompt's tokens with what is stored, and constant work a page;
// a decode step touches only the pools that it takes pages from. What a reader of
// events takes is named beside the actors, on a goroutine of its own. The calls in
// flight are bounded (WithMaxInFlight), and with them every queue.
package actors
