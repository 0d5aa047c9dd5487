// Package cross joins two caches into the one of an encoder–decoder model: that
// of the decoder's self attention, with all its pools, and that of the cross
// attention, which holds the keys and values of the encoder's output. It is a
// core: it serves one request after the other by sending requests of its own to
// two coordinators, and nobody else sends them any.
//
//	            ┌──────────────────────── Join ───────────────────────┐
//	host ─────▶ │ admit = rehearse cross, admit self, admit cross     │
//	            └───┬─────────────────────────────────────────┬───────┘
//	                ▼                                         ▼
//	   coordinator, tree, pools w…h…              coordinator, tree, pool cross_h…
//	   prompts of the decoder,                    "prompts" are encoder inputs,
//	   namespace + encoder input                  namespace + encoder input
//
// # Identity
//
// The encoder is bidirectional: the KV of its first token depends on its last.
// So cross KV is the same only if the whole input is: all tokens, the items
// that cover them, the length, salt and LoRA adapter. The decoder's own KV
// depends on all of that as well. Key writes an input into one string, which
// becomes part of the namespace on both sides. It is compared in full, like all
// tokens; no number stands for it, so nothing has to be remembered that the
// trees do not remember anyway.
//
// In the cross pool an input is a prompt that is padded to whole blocks (the key
// has the length, so padding is never mistaken for tokens) and may be reused to
// its last token. So an input of n tokens takes ⌈n/tpb⌉ pages, identical inputs
// share all of them by reference, also the last one, and nothing is ever copied
// or grown. When no sequence holds them the pages are evicted by the rule of all
// pools, deepest first. What is left of an input that lost its tail still is KV
// of that input and is reused; ReusedTokens then says how much of it.
//
// # All or nothing
//
// An admission first rehearses on the cross side, which changes nothing, then
// admits on the decoder's side, then on the cross side, where nothing can have
// changed in between. So out of pages on either side has evicted nothing on the
// other. In a batch the cross side is judged first: an item may be refused
// because of the cross pages of an earlier one that the decoder refuses then.
// Only if a transfer or an actor fails between the two is the decoder's part
// released again.
//
// # When the join fails
//
// Most of its time the join waits for a side. A panic then, or on the way to a side
// or to the caller, costs nothing: it goes on where it was, and what was not sent is
// sent. A panic in the middle of a stage leaves the round in doubt, which is aborted:
// sequences that it steps are lost. Which sequences belong together nobody but the
// join knows, and it knows it as one entry for each pair, so pairs outlive a panic.
// The round has perhaps made or ended something on one side only: the join asks both
// sides which sequences run, and releases those without a partner.
//
// # When a side fails
//
// Each side recovers by itself. What the cross side has lost the decoder's side is
// told to give up as soon as the join hears of it: a commit or a fork that the cross
// side breaks off is asked for once more, to hear. Too many failures of one side
// are those of the engine.
//
// # Computed
//
// The host has no separate call to commit cross KV: the first commit of a
// sequence that computes anything says that its cross KV is, or after the
// ticket After will be, in the pages, since no decoder layer could have been
// computed without it. From then on others reuse it.
//
// # Events
//
// Both trees tell one log, the decoder's, so ids are consecutive over all pools,
// the bound is one, and readers hear things in the order in which they happened.
// A block of the cross pool is told with the encoder tokens that it has, without
// padding; its name depends on the whole input, and its parent is the block before
// it in that input. cleared says that nothing is left on either side.
//
// # What concerns which side
//
//	both      admit, the first commit, fork, release; reset, stats, contents,
//	          check; invalidation of a session or a salt; events and snapshots
//	decoder   append, rewind, rebalance (the cross pool keeps its fraction),
//	          scales
//	either    lookup, pin, prefetch, invalidation of a prefix: the cross side
//	          if the prefix has no tokens but those of the encoder
package cross
