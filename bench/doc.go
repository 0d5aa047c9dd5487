// Package bench measures the engine. It holds benchmarks and one stress test,
// no code for anyone to import.
//
// # Floors
//
// A time alone says little: it depends on the machine and on what else runs there. So each
// benchmark has a floor for comparison: the least that any program must do for the same answer
// (compare the tokens, copy them, take pages from an array), or the same cores called without
// actors. Engine and floor take turns in one loop, on the same prompts, and swap their order each
// time. What slows one slows the other, and the quotient stays the same:
//
//	engine-ns   median time of the engine's side
//	floor-ns    median time of the floor's side
//	x/floor     their quotient: the number to read and to compare
//	p99-ns      of the engine's side, where a step's latency matters
//
// Observed runs each side in its own process, several times: x/lowest and x/highest are the
// extremes of the quotients whose median is x/floor.
//
// B/op and allocs/op count both sides; no floor allocates, so they are the
// engine's. The usual ns/op would be the sum of both and is left out.
//
// # Running
//
//	go test -run=NONE -bench=. ./bench               all, some minutes
//	go test -run=NONE -bench=Match -count=10 ./bench for benchstat
//	go test -run=NONE -bench=. -benchtime=1x ./bench once each: does it still run?
//	go test -race -bench=Stress -run=NONE ./bench    hundreds of hosts, bytes verified
//	cd bench/baselines && go test -bench=.           maps, an LRU, a radix tree
//
// With -benchtime=1x or -short the large set-ups are smaller, and the quotients
// mean nothing. KVACTOR_BENCH=large makes the largest ones: ten million blocks
// for the collector, traces from end to end.
//
// Pages have memory only in the stress test: elsewhere a device that does nothing (quietDevice)
// keeps simulated copies out of the times.
//
// README.md has the table of targets and measured values.
package bench
