// Package actors runs the cache engine: Spawn starts it, and a host calls only the methods of
// Engine. An engine is a set of actors that exchange records. An actor receives a record, calls its
// core and sends the record back. The cores (packages tree, pool, offloader, events and
// actors/coordinator) make the decisions: they are plain, single-threaded, and import no actors.
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
//	├── pool:w1024h8     device pages of one pool: references, eviction order
//	├── pool:wfullh8     one for each attention window and KV head count
//	├── offloader ──▶    host memory, and the order of all copies:
//	│                    device streams offload, onboard (two), copy
//	├── store            with WithStore: names the pages to be saved and writes them
//	└── events           the log of changes; a reader that is too slow loses events
//
// An engine for an encoder–decoder model has one more pool, which is matched by the encoder's input
// in the same round.
//
// # What each actor alone may change
//
//	coordinator  sequences: tokens, page tables, reserves; the handles of pins;
//	             scales of 8-bit elements
//	tree         blocks: tokens, priority, timer, session, and in which page of
//	             which tier each pool keeps them
//	pool         references, pins and the eviction order of its device pages
//	offloader    host pages; the copy streams; the last reads and writes of each page
//	store        the keys of blocks in a store; the pages that wait to be written
//	events       the log and the numbers of its events
//
// Only the coordinator sends messages that change another actor's state, with two exceptions: the
// tree reports changes to the event log and the store, and the offloader gives the store pages to
// write. So actors can't race, and need no retries. One list has a lock: that of the unused save
// pages, which the offloader takes and the tasks of the store give back.
//
// # What is lent, and for how long
//
// A message is a pointer to a record, and records are reused. This table says who may use a record,
// and until when.
//
//	record                      owner           lent to            until
//	request of a host           the host        the engine         it is answered: the call
//	                                                               returns, done is called,
//	                                                               the actor has it back
//	  Results and other answers the host, from the answer on
//	  tokens of a prompt        the host        the engine         it is answered; the engine
//	                                                               keeps copies
//	Match, PoolWork, Move, …    the             one tree, pool     it comes back, or the fence
//	(internal/protocol)         coordinator     or offloader       behind it (see below)
//	  page tables, tokens in    the             the same actor,    the same; several records
//	  such a record             coordinator     for reading only   may share them
//	  Effects, Victims: slices  the actor that  the coordinator,   the next record that the
//	  that an answer refers to  answered        pools, offloader   actor gets
//	events of a change          the tree        the events actor   it comes back by a channel
//	Config.Memory               the host        the device, for    Close has returned no
//	                                            pages and copies   error
//
// If a call's context ends before its turn, the call returns at once and its record is the host's
// again: the engine's queue still has a pointer to it, but drops it without reading the record.
// Once its turn has come, a call returns only with its answer, or when its context ends while its
// request waits for pages (WithWaitingRoom).
//
// The owner of a record neither reads nor writes it while it is lent. When an actor fails, its
// records don't come back. The coordinator then sends a fence to each actor: a message that comes
// back after everything sent before it. When all fences are back, no record is lent, and the
// recovery begins.
//
// With the build tag isolated each actor has its own goroutine, so the race detector sees an actor
// that touches what another one holds. `make isolation` runs the stress tests with that tag.
//
// # Rounds
//
// The coordinator serves one request at a time, in a round; requests that arrive meanwhile queue. A
// batch is one request: AdmitBatch, Commit, Append and Release of many sequences cost the messages
// of one. No stage of a round waits for the device, the clock or the host; the device's streams
// order copies and kernels. There are two exceptions: a rebalance waits for memory to move, and a
// recovery waits for the copies under way.
//
// # A request, from the call to the answer
//
//	host               gate        coordinator        tree   pools   offloader
//	 │ Admit            │              │                │      │         │
//	 │─────────────────▶│ acquires a   │                │      │         │
//	 │                  │ place, or    │                │      │         │
//	 │                  │ waits, or    │                │      │         │
//	 │                  │ ErrBusy      │                │      │         │
//	 │                  │──── call ───▶│ queued         │      │         │
//	 │                  │              │ begun          │      │         │
//	 │                  │              │─── match ─────▶│      │         │
//	 │                  │              │─── claim ────────────▶│         │
//	 │                  │              │ check capacity: all or nothing, item by item
//	 │                  │              │─── take ─────────────▶│         │
//	 │                  │              │─── move ───────────────────────▶│ submits
//	 │                  │              │─── apply ─────▶│      │         │
//	 │                  │              │─── effects ──────────▶│────────▶│
//	 │◀──────────── answer ────────────│                │      │         │
//	 │ waits for Ready on its stream, computes, Commit(After: its kernel) …
//
// If a call's context ends while the call waits at the gate or in the queue, it has started
// nothing. A call that has begun is answered, whatever its context does: otherwise its caller
// wouldn't know what it holds.
//
// Every accepted call is answered: served, refused, cancelled by its context, or aborted because an
// actor or the engine has ended. A refusal is a *messages.Refusal and has changed nothing;
// errors.Is knows the Err… values of package messages. In a batch each item has its own error. If a
// request that a host's actor sends to PID can't be served, it comes back in a *messages.Aborted,
// even after the engine has ended.
//
// # Failures
//
// A panic in an actor is a bug of the engine. The actor is restarted, and before the next request
// the coordinator rebuilds all pools and host memory from the owners of their pages: its sequences
// and pins, and the tree. The request under way fails with ErrInternal and the cause; its sequences
// are unchanged or lost, and the host repeats it. These contents are lost:
//
//	pool         stored blocks that the request was moving; so with all below
//	tree         within a change: all that is stored, and pins; sequences go on
//	offloader    within a change: contents in host memory, and blocks on the
//	             device pages that it was about to write to
//	coordinator  within a round: the sequences that the round has touched, which
//	             answer ErrSequenceLost
//	store        pages that it was given and had not passed on, which are not saved
//	events       all events not yet read; a snapshot brings a mirror up to date
//
// The engine logs the panic with its stack (WithLogger) and publishes a *messages.Restarted. After
// too many failures in a short time (WithRestartLimit) the engine has failed: every call returns
// ErrFailed with the cause. docs/recovery.md has the details.
//
// A panic in a function of the host (Submit's done, the clock, WithAutoRebalance) isn't a failure
// of an actor. It ends the program, as a panic on the host's own goroutine does.
//
// # The end
//
// Close serves what has been accepted, stops the actors, waits for the copies and kernels that use
// the memory, and gives memory and streams back. If the engine's parent actor stops or is
// restarted, the engine ends without a Close: calls return ErrClosed, and the memory is given back
// before the parent's next Started, unless copies or kernels use it for longer than two seconds.
//
// # Costs
//
// An idle actor runs on its sender's goroutine (package mailbox), so an uncontended call is
// answered on the caller's own goroutine: tens of nanoseconds a message (package mailbox has the
// measurements), and no goroutine is woken. Do allocates nothing if the host reuses its records,
// unless events or a block store are on: then a call makes a record of what it changes in the tree.
// The log's actor and the store's read it, and hash new blocks, on goroutines of their own. An
// admission compares the prompt's tokens with what is stored, and does constant work a page; a
// decode step touches only the pools it takes pages from. The number of calls in flight is bounded
// (WithMaxInFlight), and so is every queue.
package actors
