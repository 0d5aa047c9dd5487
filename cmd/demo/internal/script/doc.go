// Package script reads requests to a cache engine from lines of JSON and
// answers each with one line. It plays the host application around the engine:
// it names sequences and pins, computes the KV of tokens on the device's compute
// stream, commits, and checks every byte when asked to.
//
//	line ──▶ shape ──▶ not_open ──▶ values ──▶ names ──▶ too_long ──▶ pages ──▶ answer
//	         reader               …Line.value          player        engine
//
// A request is refused by the first check that it fails, and has changed
// nothing then. In admit_batch and append, a wrong shape refuses the line; all
// that comes later refuses one request of it and the others go on.
//
// # What is shape, what is value
//
// Shape is what can be told from the line and the names of fields alone,
// without knowing what a number or a string says.
//
//	shape: the line is refused, bad_request     values: one request is refused, bad_request
//	------------------------------------------  ------------------------------------------
//	no JSON, no object, not UTF-8, too long     tokens empty, a token outside 0 … 2³¹−1
//	unknown op, op missing or no string         from, count: count < 1, ids outside
//	a field twice, a field unknown              salt empty
//	a required field missing or null            hash not 64 hex digits
//	a string, list, flag, object expected       item empty, overlapping, outside the prompt
//	number with fraction or exponent where      prefill neither auto nor manual
//	  an integer is expected: 4.0, 4e0          beam_width < 1, chunk_tokens no multiple
//	tokens and beams in one step, or neither    priority, duration, range out of bounds
//	invalidate: none or two selectors           computed, ms negative, rewind < 1, into empty
//	fault panic without an actor                beams empty, a parent that is no beam
//	                                            fault: unknown kind or actor, count < 1
//
// An integer that 64 bits cannot hold has the right type and a wrong value.
// Null stands for absent everywhere but in lists. In open, values of model,
// cache and pages, page counts for pools that do not exist, and unknown names in
// cache are config_invalid, all in one message; wrong types in cache are shape.
//
// # Who checks what
//
// This package checks shape, names, salts, hashes, single numbers, and lengths
// against max_seq_len. Engine.Validate checks what needs the cache's rules:
// overlaps, ranges that touch, features that exclude each other. The engine's
// requests check what needs its state: whether a prompt is computed, how far a
// rewind may go, pages. A name that an earlier valid request of the batch uses
// is a duplicate; valid is what has passed all checks but that for pages.
//
// # What the host computes
//
// After admit: the KV of all tokens that were not reused, in one kernel for a
// batch, or one a chunk. After append: the tokens that now have a successor.
// With manual prefill: what commit says, when it says it. A kernel waits for
// what the engine called ready, reads the pages of the whole context and checks
// them, writes its rows; its ticket is the After of the commit. So every read
// and write of the host is known to the engine before a page has another owner.
//
// # Order of answers
//
// Each answer is written and flushed before the next line is read, its fields
// in a fixed order, op and ok first. Time stands still but for advance; running
// sequences are walked in the order of their names. Output is a function of the
// input.
package script
