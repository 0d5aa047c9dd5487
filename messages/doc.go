// Package messages defines the requests that a host sends to an engine, the
// answers that it gets, and the types that both are made of. It imports the
// standard library only.
//
// A request is a pointer to a record that the host owns. From sending until the
// engine has sent the same record back, with the answers filled in, the record
// and all its slices belong to the engine. A host that uses its records again
// allocates nothing once they have grown.
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
// Requests that no inference needs are in two packages below this one: kvevents has the
// events of the cache and their readers, inspect has statistics, pictures of the pages, and
// the check of all invariants.
//
// A host that is an actor receives them back answered, or inside an Aborted. A
// host may watch the event stream of the actor system for Restarted. What the
// actors of the engine say to each other is in a package that hosts cannot import.
package messages
