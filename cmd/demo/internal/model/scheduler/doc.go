// Package scheduler runs the requests of an inference server on a model: continuous
// batching over a runner.
//
// One goroutine, Run, makes steps. Each is one kernel over all running sequences:
//
//	fetch    what the engine's store has of a new prompt, beside the steps
//	admit    requests that wait, first come first served, while pages last
//	append   to each sequence whose prompt is computed: the sampled token, and
//	         drafts that are looked up in its own text
//	compute  a chunk of some prompts, and the appended tokens of all others
//	sample   a token of each sequence; drafts that are what was sampled save a step
//	commit   what is right; rejected drafts are rewound
//	release  sequences whose answers are complete
//
// A sequence that finds no page preempts the youngest: that one is released and waits
// again, first in the queue, with its text so far as its prompt, which is mostly in
// the cache then. A request with several choices computes its prompt once and forks.
//
// What is generated depends on the request alone: neither on what is cached, nor on
// the batch, nor on drafts, nor on preemptions. Each choice draws its random numbers
// from its own source, one for each token.
package scheduler
