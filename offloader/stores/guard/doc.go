// Package guard stands between an engine and its store. A store is the host's code, and may be
// slow, broken or blocked for ever. A guarded one
//
//   - ends each call with its time, whether or not the store does;
//   - is not asked for a while when it has failed again and again (a breaker), and is probed until
//     it answers;
//   - verifies what it returns, and from then on has no object that was wrong;
//   - counts all of that.
//
// The actors of an engine carry its messages; what they know of the store is here.
package guard
