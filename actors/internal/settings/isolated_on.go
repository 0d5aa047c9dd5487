//go:build isolated

package settings

// isolated is the default of OwnGoroutines: the build tag isolated sets it, so
// that every test runs with a goroutine for each actor.
const isolated = true
