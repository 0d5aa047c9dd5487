// Package coordinator is the core of the engine's central actor: it holds the sequences, serves one
// request at a time, and alone sends messages that change the tree, the pools and the offloader. It
// is plain and single-threaded: requests come in by Submit, answers by Answered, failures by
// Failed; messages go out by Port; it never waits in between.
//
// # How to read it
//
// A transaction serves a request. Each kind has its own type, in its own file, with a picture of
// its stages at the top. Each stage begins with a call of wait, which names the method to run when
// all answers are there. New in coordinator.go lists which transaction serves which type of
// request.
//
//	kernel.go          the round, the epoch; sends work, counts answers; queue.go
//	coordinator.go     which transaction serves a request, and what comes next
//	admission.go       Admit: from the request to the answer, which admitted.go fills in; also
//	                   lookup.go, prefetch.go, pin.go, import.go
//	  batch.go           matching and claiming; prompt.go
//	  sources.go         partial reuse: who may copy from or take over which block
//	  plan.go, take.go   what a prompt needs, and how it gets it
//	  states.go          recurrent layers: checkpoints are copied to working pages
//	  admissionqueue.go  admissions that wait for pages
//	commit.go          Commit; committing.go is also the second half of Append, and
//	                   checkpoint.go the checkpoints that both make, as far apart as
//	                   spacing.go says
//	append.go          Append: an engine step; step.go, rewrites.go, beams.go, takeback.go
//	release.go         Release; facts.go describes it to pools that predict uses
//	rewind.go, fork.go Rewind, Fork
//	pins.go            what pins hold; UnpinPrefix is in pin.go
//	forget.go          Invalidate, Reset
//	fetch.go           Fetch: brings pages from a store to host memory; fetchlength.go
//	save.go            which pages are saved to a store
//	describe.go, transfer.go
//	                   hand-overs: what a sequence has, copies of its pages; import.go
//	overview.go        ReadOverview: samples of the pages and the top of the tree
//	encoder.go         what is particular to encoder–decoder models
//	rebalance.go       Rebalance; split.go says how many pages each pool gets, and
//	                   pressure.go where memory is worth most
//	reads.go, audit.go requests that only read, expired timers; Check
//	validate.go        which requests are refused for their values
//	statistics.go      what is counted; thrash.go finds prompts that were evicted too early
//	recovery.go        after an actor has failed
//	lookahead.go       copies ahead of demand, when nothing waits
//	sequence/          the running sequences, a core of their own
//	outgoing.go        work for the tree, and what pools and host memory do to follow
//	batches.go         the operations for pools and offloader, one message each
//	pages.go           how many pages pools and host memory have said they have
//
// # A round
//
//	Submit ─▶ queue ─▶ round ─▶ (timers) ─▶ transaction.start ─▶ messages …
//	                                          ▲        … Answered, Answered:
//	                                          │           all answers are there
//	                                        resume ◀──────┘
//	                                          └─▶ … ─▶ reply
//
// A stage sends a message to each pool that has something to do. A stage of the tree or the
// offloader always sends its message, even if they have nothing to do: this is cheap, and the same
// for every request of a kind. Records are reused, so admissions, commits, appends and releases
// allocate nothing once the records have grown. Retention, encoder inputs, multimodal items, copies
// on write, forks, pins, beams and failures do allocate.
//
// # All or nothing
//
// Each pool's answer has its page counts, and only the coordinator asks pools to change them. So
// the coordinator knows how many pages it can take:
//
//	available = total − held − reserved − what was decided before in the batch
//
// A request that fits can't fail afterwards; a refused one gives back its claims and has changed
// nothing. Only copies may fail, if the device refuses them: an admission is then matched and
// decided again with what is left, and a step whose copy on write failed is taken back.
//
// # A batch
//
// All prompts are matched against one state, and their matches claimed, before any page is taken.
// So none can evict what another has matched. Then they are decided in order.
//
// # Failures
//
// A failure ends the epoch: later answers to the old epoch are dropped, and the round's changes to
// the sequences are undone. Pools and host memory are then rebuilt from the owners of their pages:
// the sequences (which a round changes last, for this reason), the pins, and the tree. The request
// of the round is answered with the failure.
//
// # To look inside
//
// Check verifies every relation that the coordinator maintains; String draws its state. The scripts
// under testdata/scripts show, for each kind of request, the stages with every message and its
// answer.
package coordinator
