// Package wire serves the published blocks of an engine to other processes: over
// ZeroMQ as vLLM does, with a replay for readers that connect late, and as server-sent
// events over HTTP.
//
//	engine ── events ──▶ View ── changes ──▶ batches 0, 1, 2, … ──▶ PUB     routers
//	                                            │                ──▶ SSE     people
//	                                            └─ log ◀── ROUTER            routers, replay
//
// A Publisher reads the engine's events at an interval, so the engine only has to answer one
// request. Without readers it pauses and asks for nothing; a new reader waits until everything so
// far is published. A reader's cost is bounded: a subscriber that doesn't keep up loses batches, as
// is usual with ZeroMQ, sees the gap in the sequence and asks for a replay; one that doesn't read
// at all is disconnected.
//
// # Sequences
//
// Batches are numbered from 0. The first one says AllBlocksCleared and stores what the cache holds,
// so a reader that followed an earlier run of the engine forgets it; llm-d's router also notices
// that the number has fallen. Dynamo ignores numbers it has passed: register the engine there
// again.
//
// # Replay
//
// The log keeps the latest batches. A replay from an older one is answered without a gap, as
// routers demand: with an empty batch for each one that is gone, and under the latest number a
// batch that clears and stores everything. An empty batch costs 60 bytes.
//
// # What others learn
//
// ZeroMQ's readers get tokens, adapters and salts as they do from vLLM: they need them to recognize
// prompts. Endpoints are on the loopback interface unless the host says otherwise; ZeroMQ has no
// access control here, so you must trust any network that reaches an endpoint. The HTTP handler
// sends neither tokens nor salts unless the host asks for them, and hashes the names of salted
// blocks with a key that changes at each start.
package wire
