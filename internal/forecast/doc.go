// Package forecast predicts when a run of cached blocks will be used again, and says how much it is
// worth to keep the run until then. It is the policy behind eviction_policy: forecast. It knows no
// pages: pools tell it about requests, and ask it for values.
//
// # The value of a piece
//
// A piece is a run of blocks of one prefix with the same last use. For a piece of age x
// whose next use comes at an unknown time T the value is
//
//	        P(T ≤ t | T > x)
//	max  ───────────────────────
//	t>x  E[min(T, t) − x | T > x]
//
// the expected hits per time that the pages are occupied, if they are given up at the best moment
// t. It is Gittins's stopping index for the decision to go on holding. A conversation is worth
// little just after an answer, while its user reads, more when the next question is due, and less
// again when the question does not come. LRU does the opposite: it keeps the newest through the
// pause and evicts them just before use.
//
// # The model
//
// The expected gap is exp(scale), where scale is a sum over features of the request and
// the piece: new blocks, length of the answer, tokens that the prompt adds to the last one
// of its session, uses of the piece and of the one in front, the session's pace, the
// answer's length apart for the first requests of a session, and whether the piece was
// superseded or is the last block of a prompt. The hazard, the chance of a use in a bin of
// relative age ln(age + 1 s) − scale, is a logistic function of a sum over the same
// features. Values come from a table over score and relative age. A piece keeps its
// features, and each comparison predicts by the weights of that moment.
//
// The policy learns from one block of each request, which it watches until its next use
// whether the block stays cached or not: every bin of age that the block outlives is an
// observation, so unfinished waits count for as long as they have lasted.
//
// Each weight of the hazard is a normal distribution, and an observation moves the uncertain ones
// most. A cache that holds some minutes of traffic is turned over within some thousand
// observations, so each of them must teach much.
//
// What a waiting request is going to use isn't predicted: such pieces are awaited (Await), and
// worth more than all others until they are used. Among them the order is that in which the waits
// began.
//
// A guard compares the policy with LRU on one block in 36 of a large cache and returns to
// LRU for a time where that would have hit clearly more.
//
// # Checkpoints of recurrent states
//
// A pool of states has a policy that NewCheckpoints makes: its pieces are single pages with
// hazards that are counted, and values in proportion to what a use saves. See checkpoints.
//
// # Bounds and determinism
//
// The memory is bounded when a policy is made, see New: it has so many watched blocks, session
// ends and blocks of the guard, each with the signature that it is found by.
//
// A request costs O(1), and two look-ups and a hash for each of its signatures. All decisions
// are a function of the requests, their times and the seed. A standing clock counts requests
// instead of time.
package forecast
