// Package wire serves the published blocks of an engine to other processes: over
// ZeroMQ as vLLM does, with a replay for readers that connect late, and as server-sent
// events over HTTP.
//
//	engine ── events ──▶ View ── changes ──▶ batches 0, 1, 2, … ──▶ PUB     routers
//	                                            │                ──▶ SSE     people
//	                                            └─ log ◀── ROUTER            routers, replay
//
// A Publisher reads the engine's events at an interval, so the engine does nothing for it but
// answer one request. Without readers it is paused and asks for nothing; a reader that comes waits
// until what has happened is published. What a reader costs is bounded: a subscriber that does not
// keep up loses batches, as ZeroMQ's do, sees the gap in the sequence and asks for a replay; one
// that does not read at all is disconnected.
//
// # Sequences
//
// Batches are numbered from 0. The first one says AllBlocksCleared and stores what the
// cache holds, so a reader that followed an earlier run of the engine forgets it; a
// router of llm-d sees that from the falling number as well. Dynamo ignores numbers it
// has passed: register the engine there again.
//
// # Replay
//
// The log keeps the latest batches. A replay from an older one is answered without a
// gap, as routers demand: empty batches for those that are gone, and under the latest
// number one batch that clears and stores all. The cost is 60 bytes for each empty
// batch.
//
// # What others learn
//
// ZeroMQ's readers get tokens, adapters and salts as they do from vLLM: they need them
// to recognize prompts. Endpoints are on the loopback interface unless the host says
// otherwise; ZeroMQ has no access control here, so a network that reaches an endpoint
// must be trusted. The HTTP handler tells neither tokens nor salts unless it is told
// to, and names of salted blocks are hashed with a key that changes with each start.
package wire
