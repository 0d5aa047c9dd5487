// Package sim is a test that runs whole engines on the simulated device, through thousands of
// random steps under a seeded scheduler, and looks for anything wrong.
//
//	go test ./bench/sim -run=TestSeeds -timeout=0 -seed=1 -steps=20000 -seeds=50
//
// A run is a function of its seed and its number of steps. Each step draws from
// a generator of its own, seeded by the run's seed and the step's number, so a
// step that is left out changes no other. In a step some actors receive one
// message each, in an order of the seed's choice, or it is
//
//	a host        that admits, computes, commits, appends, forks, rewinds,
//	              releases; hosts have a compute stream each and write real
//	              keys and values through it
//	an observer   that looks up, pins, prefetches, invalidates, resets, reads
//	a fault       a copy that fails, a stream that stalls, an actor that
//	              panics, a device that panics, a caller that gives up
//	time          the device's, or the clock's, which ends retentions
//
// One seed in seven has an encoder–decoder model: its hosts give an input with each
// prompt and write cross keys and values in the same kernels.
//
// One seed in ten, and all from 4000000000 on, have a store that delays, fails, hangs, forgets,
// duplicates and lies. Fetches run as coroutines, so that the run decides when each of them
// goes on.
//
// Page counts are small, so that eviction and refusals happen all the time. Now
// and then the run comes to a quiet point: every call must have been answered
// exactly once, every invariant of every actor must hold, every byte that a
// sequence or the tree claims must be there in both tiers, the hazard checker
// must be silent, a mirror that followed the events must equal a snapshot, and
// prompts must match what a naive search of all that is stored finds.
//
// A failure is shrunk by leaving out steps as long as some failure remains, and the remaining
// history is printed. The same seed and steps replay it.
package sim
