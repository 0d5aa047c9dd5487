// Package messages defines the requests that a host sends to an engine, the answers it gets, and
// the types they are made of. It imports only the standard library.
//
// A request is a pointer to a record of the host. From the call on, the record and all its slices
// belong to the engine, until it returns the same record with the answers filled in. A host that
// reuses its records allocates nothing once they have grown.
//
// # Requests
//
// A host sends these by pointer to Engine.Do, Engine.Submit or Engine.PID; the
// methods of actors.Engine wrap them:
//
//	sequences   Admit, Commit, Append, Rewind, Fork, Release, ReadTables
//	the cache   Lookup, Prefetch, PinPrefix, UnpinPrefix, Invalidate, Reset,
//	            SetWeights
//	memory      Rebalance, ReadScales, WriteScales
//
// Requests that inference doesn't need are in two packages below this one: kvevents has the events
// of the cache and their readers; inspect has statistics, pictures of the pages, and the check of
// all invariants.
//
// A host that is an actor gets its requests back answered, or inside an Aborted. The actor system's
// event stream has a Restarted for each failure of an actor of the engine. The messages between the
// engine's actors are in a package that hosts can't import.
package messages
