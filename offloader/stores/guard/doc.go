// Package guard stands between an engine and its store. A store is the host's code, and may be
// slow, broken or blocked for ever. A guarded one
//
//   - returns from each call when its time is up, even if the store doesn't;
//   - is not asked for a while when it has failed again and again (a breaker), and is probed until
//     it answers;
//   - verifies the objects it returns, and treats those that were wrong as missing from then on;
//   - counts all of that.
//
// Package actors carries the messages; what an engine knows of its store is here.
package guard
