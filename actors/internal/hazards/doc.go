// Package hazards tests the engine's data plane; it has only tests, nothing to import. Everything
// runs through the whole engine: actors, the simulated device with real bytes, and the hazard
// checker around it.
//
// # Waits
//
// The engine orders copies and the host's kernels by waits, each for a reason
// that offloader.WaitNames names. One workload (see host) makes every reason
// matter: pages are evicted to host memory and come back, prompts are reused in
// part from both tiers, forks are copied on write, windows pass, sequences are
// released while their kernels run, and the hosts have several streams. Then
//
//	all waits there    the checker is silent, every byte is right
//	any one left out   the checker reports, for each name
//
// The first half is worth something only with the second: a checker that sees nothing would pass
// it, too. The second also shows that every wait is needed.
//
// A request that reuses a page which is still being copied waits for that copy and
// starts no second one.
//
// # Recurrent states
//
// The same test host (type guest) runs with too few state pages in both tiers, and each wait
// that states need is left out there, too. The engine also moves states: it zeroes working
// pages, copies them to checkpoints and forks, and copies checkpoints back. Each of these
// copies is left out in turn, and wrong bytes are found.
//
// # Faults
//
// Copies that the device refuses, streams that stall, a device that is lost, memory that is not
// there: each has a row in a table of what the engine must answer, and of what must be right
// afterwards.
//
// # Ahead of demand
//
// Offloading ahead changes only when bytes move: the same workload with and without it has the same
// answers, events and counters, except those of bytes and waiting.
//
// # Memory that moves
//
// Device memory moves between the pools at step boundaries of the same workload,
// kernels and transfers under way: no hazard, right bytes, and a host that only
// listens keeps the right page tables.
package hazards
