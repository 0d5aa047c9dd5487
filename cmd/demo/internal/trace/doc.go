// Package trace reads request traces that say, block by block, which prompts
// begin alike.
//
// A trace is a file of JSON lines, plain or gzip (told apart by the first two
// bytes), one request a line in the order of arrival:
//
//	{"timestamp":0,"input_length":6758,"output_length":500,"hash_ids":[0,1,2]}
//	{"timestamp":9,"input_length":324,"output_length":197,"hash_runs":[[0,20],[104,3]]}
//
// hash_ids is the form of the Mooncake traces; hash_runs is the same list
// run-length coded, [s,n] for s … s+n−1. Other fields are passed over.
//
// An identity names a block together with everything before it, so each
// identity has exactly one predecessor, and two prompts that share an identity
// share all up to it. The reader holds files to that: an identity that comes
// behind another one than before is an error, for a cache would be measured on
// prompts that cannot exist.
//
// # Block size
//
// No field states how many tokens a block has; the lengths do. A prompt of P
// tokens has at most ⌈P/b⌉ blocks in hash_ids (the last may be partial) and at
// most ⌊P/b⌋ in hash_runs, so each line bounds b from above. The reader looks
// ahead over the first megabytes and takes the largest power of two under all
// bounds; hash_ids files take 512, what all published ones have, where their
// lines leave the choice.
//
// # Numbers
//
// Identities become numbers by first appearance, so that they are
// small and dense whatever the file uses.
//
// Reading is streaming: a line at a time, into buffers that are reused.
package trace
