// Package workload makes up conversations: many users talk to a few assistants
// at once, and each turn sends the whole conversation so far.
//
//	system prompt (shared) │ user │ answer │ user │ answer │ user …
//	◀── turn 1's prompt ────────▶
//	◀── turn 2's prompt ─────────────────────────▶
//
// So a conversation finds its own past in the cache if it comes back soon
// enough, and the system prompt of its assistant if another conversation uses
// it. Popularity of assistants, lengths and pauses are skewed as they are in
// recorded traffic. Everything is a function of the seed: what a conversation
// says does not depend on when, or by which host, it is served.
package workload
