// Package devicetest has the tests that every gpu.Device must pass. Run is the conformance suite.
// Program generates random work, and computes in a simple way the right bytes and whether the order
// is right.
//
// A backend's test calls
//
//	devicetest.Run(t, func(t *testing.T) gpu.Device { … })
//
// with a function that opens a fresh device with at least 16 MiB of memory.
// Checks that a device can only pass with abilities beyond gpu.Device (failing
// on demand) are skipped where it has none.
package devicetest
