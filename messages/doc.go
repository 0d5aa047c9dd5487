// Package messages defines the requests that a host sends to an engine, the answers it gets, and
// the types they are made of. It imports only the standard library.
//
// A request is a pointer to a record that the host owns. Once sent, the record and all its slices
// belong to the engine until it sends the same record back with the answers filled in. A host that
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
// A host that is an actor gets them back answered, or inside an Aborted. A host may watch the actor
// system's event stream for Restarted. The messages between the engine's actors are in a package
// that hosts can't import.
package messages
