// Package replay drives the engine with the requests of a trace.
//
// A trace says which blocks prompts share, not what is in them; replay makes
// tokens of identities so that the engine finds out by itself. The first token
// of a block is its identity, the others follow from it: two different blocks
// behind the same prefix differ at once, as two texts do. What no identity
// covers — the end of a prompt whose blocks are listed in full only, answers —
// gets tokens that no other request has.
//
// There are two ways to replay.
//
// Timed (Timed) is the engine at a server: requests arrive by their timestamps at a
// server of package serve, wait, are prefilled chunk by chunk together with
// others, generate their answers, which are stored, and go. Time is that of the
// simulated device.
//
// Atomic (Atomic) is the model in which caches are compared: one request at a
// time, in file order, finds the leading run of its blocks, then all its blocks
// are in the cache, then the next one comes. The prompt is its blocks, a
// partial last one filled up, and one token more that is never committed, so
// that the rule that a prompt's last token must be computed takes no block
// away; the engine gets one page more for it. The hit counts are then those of
// a textbook LRU, exactly.
package replay
