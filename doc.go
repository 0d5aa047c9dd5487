// Package kvactor is a KV cache engine for LLM inference that a Go program embeds. It
// decides which device page holds the keys and values of which tokens, finds what a
// new prompt can reuse, moves pages between device and host memory, and tells the
// host's compute stream when each page may be read or written. It computes no
// attention.
//
// Most hosts import this package and their device's package. Open starts an engine. Admit makes a
// Sequence from a prompt; Append, Commit, Rewind and Fork continue it, and Release ends it. For
// each of these, Engine has a method that takes a batch of steps and costs one message: a host that
// decodes 64 sequences calls Append once a step.
//
//	admit ──▶ compute the tokens that were not reused ──▶ commit
//	            ▲                                            │
//	            └── launch a kernel ◀── append a token ◀─────┤
//	                                                         └──▶ release
//
// # Kernels
//
// Inputs has what paged attention kernels take: flat block tables with a stride, a slot for each
// new token, sequence lengths and query starts. Engine.View says where a layer's rows lie in a
// page.
//
// No call of a step waits for bytes; Rebalance, Resize, Close and hand-overs do. A kernel waits for
// the tickets in Sequence.Ready before it uses the pages. The host sets Step.After to the ticket
// that passes when the kernel has ended. A host that waits for its kernels itself leaves After
// zero.
//
// # Errors
//
// A refused request has changed nothing. Its error is a *Refusal with a code, which
// errors.Is compares with ErrOutOfPages and the others. A batch returns one error that
// joins those of all its steps, and sets Err of each step.
//
//   - ErrBusy: send the same batch again.
//   - ErrOutOfPages: send it again when pages have been released, unless Never is set.
//   - ErrInternal: an actor failed and was rebuilt. Send it again; a sequence that couldn't be
//     proven intact then answers ErrSequenceLost.
//   - ErrSequenceLost: release the sequence and admit it again.
//   - ErrBadStream: a hand-over was damaged or refused; the source still has the sequence.
//   - ErrFailed, ErrClosed: close the engine and open another.
//
// # Packages
//
// Hosts import these packages and no others; the rest of the module may change with any version.
// Many types of this package are aliases of types in windows, messages and actors. Look there for
// their fields and methods, for instance with go doc messages.AdmitRequest.
//
//   - [github.com/kvactor/kvactor/windows]: models, options of a cache, and its pools;
//     windows/hfconfig and windows/kvconfig read them from files, windows/resources plans
//     for layers that declare what they keep
//   - [github.com/kvactor/kvactor/gpu]: what a device is; gpu/cuda, gpu/host and gpu/sim are
//     devices, gpu/group joins several, gpu/check finds accesses that nothing orders
//   - [github.com/kvactor/kvactor/gpu/attention]: a reference to compare kernels with
//   - [github.com/kvactor/kvactor/messages]: the records of requests and answers, with
//     messages/kvevents, messages/inspect and messages/transfer
//   - [github.com/kvactor/kvactor/actors]: options such as stores and clocks, and the engine
//     for hosts that are actors; actors/enginetest is for tests of hosts
//   - [github.com/kvactor/kvactor/events]: mirrors for routers; events/publish sends events
//   - [github.com/kvactor/kvactor/metrics]: Prometheus, with metrics/page and metrics/tracing
//   - [github.com/kvactor/kvactor/pool/evict]: what an eviction policy of the host's own needs;
//     pool/evict/published has some from papers
//   - [github.com/kvactor/kvactor/offloader/stores]: stores beyond host memory
//
// # Hosts that are actors
//
// Package actors has the engine beneath this package. Its messages are records that can be reused,
// for hosts that are actors or that must not allocate. Engine.Actors returns it.
package kvactor
