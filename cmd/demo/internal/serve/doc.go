// Package serve is an inference server around the cache engine, with
// everything but the arithmetic: the part that a host application would play.
//
// A Server runs one loop. Each turn of it is an engine step of in-flight
// batching:
//
//	prefetch the first requests that wait, with             Prefetch
//	         Config.Prefetch
//	admit    waiting requests, as many as pages allow       Lookup, AdmitBatch
//	compute  one kernel for all: a chunk of each prefill,   Launch, Sync
//	         one token of each answer; every page that an
//	         admission reused is read and checked first
//	commit   the chunks of the prefills                     Commit
//	append   the sampled tokens, committing those computed  Append
//	release  the sequences whose answers are complete       Release
//
// A request that finds no pages waits until some sequence has gone and is then
// tried alone, so that a long prompt is not starved by short ones. When not one
// sequence can go on, the youngest is released and waits again with what it has
// generated so far. Only what does not fit the empty engine is given up.
//
// Time is the device's: a kernel lasts as long as package cost says the step of
// a real model takes, and waits for the copies that the engine ordered.
//
// Keys and values are bytes that depend on all tokens up to theirs, so a page
// of the wrong prefix, or of the right one with a hole, is noticed when it is
// reused.
//
// Several servers may share an engine, each with its own goroutine and stream.
package serve
