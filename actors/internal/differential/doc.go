// Package differential compares the engine, with all its actors on the simulated device,
// with the naive oracle of the semantics, answer by answer. It has only tests.
//
// They draw runs of host operations over small worlds. A world has one to three pools of a
// dozen pages, two tokens in its alphabet and prompts that continue what was seen before, so
// that a run of thirty operations evicts, offloads, shares, copies and forgets. Both engines
// get the same requests; the names that they choose themselves are compared up to renaming:
//
//	what             compared
//	errors           code; pool, need and available of out_of_pages
//	page tables      shape, −1, and a one-to-one relation between the page
//	                 numbers that running sequences hold at that moment
//	contents         by key: the tier in each pool
//	stats            all but rounds
//	events           pool by pool, hashes by a one-to-one relation that is
//	                 learned as blocks are stored; a mirror follows each side
//	handles          kept in pairs
//	stores           how many objects each operation has saved
//
// Time moves only by the operation advance, for both.
//
// The comparison is tested, too: the oracle agrees with itself, and oracles that are wrong
// in one thing each are found.
package differential
