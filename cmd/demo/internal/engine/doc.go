// Package engine opens the cache engine that the demo's commands drive: a
// model's geometry, page counts, the simulated device, a stream for the host's
// own kernels, and a meter that is told of every call.
//
//	commands ──▶ actors.Engine ──▶ simulated device
//	    └───── kernels of the host ───▶ ┘
//
// Only engine.go and open.go know which engine and which device these are.
package engine
