// Package publish turns an engine's events into forms that outside routers and indexes can follow:
// vLLM's event stream, AIBrix's, and TensorRT-LLM's list of events.
//
// # The view
//
// An engine's own events are about single pools. Some are about blocks stored in part, and blocks
// whose parents are evicted. No router follows that. A View follows the engine and holds the
// published blocks. A block is published if
//
//   - it is whole,
//   - every pool that the view counts holds it, in either tier,
//   - its parent is published, or it begins a prompt,
//   - it lies in a prefix that a prompt can reuse: one that ends where the other pools
//     hold what the next token needs, its window and the checkpoint of its states,
//   - no other published block has its name on the wire.
//
// The pools that count are those with full attention; in a model without any, the attention pools
// with the largest window. Readers don't know about pools: they assume that a prompt reuses the
// longest run of blocks they know. It does if it goes on after a place where a prefix ends; a
// prompt that branches off between two such places reuses less. Blocks of a prompt with an encoder
// input are left out, since no reader can name them.
//
//	engine    b0 ── b1 ── b2        b1 is evicted: the engine keeps b2, which
//	          held  gone  held      a later prompt reuses when b1 is back
//	view      b0                    removed: b2, then b1
//
// Follow compares the state after a batch with the state before it, so what comes and goes within a
// batch is never published. The changes are in an order that every reader accepts: children are
// removed before their parents, parents are stored before their children, and a subtree whose root
// comes back is stored again as a whole.
//
// A view that has missed events is stale until it follows a snapshot. The changes between its last
// state and the snapshot are published like any others.
//
// # Names
//
// On the wire a block is an unsigned integer that is not zero: the last eight bytes of its name in
// the engine's events, or, with SHA256CBOR, those that vLLM computes with
// --prefix-caching-hash-algo sha256_cbor. If two blocks have the same name, the second isn't
// published as long as the first is, and after that only when it next changes.
//
// # Profiles
//
// AppendVLLM writes events as maps, with many blocks in one event. AppendAIBrix writes arrays, with
// one block in an event, and knows no tiers. TRTLLM makes the events that TensorRT-LLM answers a
// poll with. Salts and adapters are written so that each reader can tell them apart; Config.Only
// withholds what a reader can't tell apart.
//
// # Costs
//
// A view has 200 bytes for each block of the counted pools, and their tokens. Follow
// costs a map access for each block of a batch and for each one published or removed.
package publish
