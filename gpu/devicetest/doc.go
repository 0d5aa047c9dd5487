// Package devicetest holds what every gpu.Device must pass: Run is the
// conformance suite, Program a generator of random work with the right bytes
// and the right verdict on its order computed the plain way.
//
// A backend's test calls
//
//	devicetest.Run(t, func(t *testing.T) gpu.Device { … })
//
// with a function that opens a fresh device with at least 16 MiB of memory.
// Checks that a device can only pass with abilities beyond gpu.Device (failing
// on demand) are skipped where it has none.
package devicetest
