// Package load is a test that embeds an engine as an outsider would: with package kvactor alone,
// written from docs/embedding.md and docs/semantics.md. It compares every byte it reads.
//
//	go test ./bench/load -run=TestSeeds -seed=1 -worlds=100   worlds of the seeds 1 to 100
//	go test ./bench/load -run=TestSeeds -seed=1 -seconds=60   as many as a minute has
//	… -nofaults -auto                                         no faults; WithAutoRebalance in each
//	… -seed=7 -again=20                                       the same plan many times
//
// # A world
//
// A seed decides the plan of a world (plan.go): the model (windows, sinks, chunks of attention,
// recurrent states, an encoder), one or two tiers, the policy, quotas, page counts, and what
// goes wrong in it. One to four hosts use one engine, each on a goroutine and a stream of its own
// (host.go). They admit prompts that begin as others did, compute them in pieces, append
// tokens and drafts, accept drafts of an earlier kernel, rewind, fork, search with beams, hand
// sequences over, pin, prefetch, invalidate, wait for pages, and give calls up. Copies fail and
// actors panic. Where a host asks for a Rebalance, the others stand still meanwhile, as its
// documentation demands; with WithAutoRebalance nothing holds the hosts together.
//
// The seed doesn't decide how the goroutines of several hosts take turns: you may have to run a
// seed several times to see a problem again, which -again does. Worlds with one host and a context
// that never ends are the same each time.
//
// # Bytes
//
// The keys and values of a token, in each layer and head of each rank, are a function of a hash of
// all that they depend on: salt, adapter, the encoder's input, and every token and item up to
// theirs (rows.go). States and the encoder's rows are made alike. A kernel on the simulated
// device follows the tables of Inputs, compares all that its first token attends to, and writes its
// rows. So the page of another prefix, a page that was given away too early and a copy that came
// too late are seen by the next kernel that reads there. Three worlds in four also run under
// gpu/check, which reports each access that nothing orders.
//
// # The end of a world
//
// All sequences and pins have ended. What is stored is admitted once more and compared; with a
// store a second engine fetches it. Check must find nothing, no page may be held, the checker must
// be silent, and no goroutine may be left. A world that takes longer than -hang ends the test
// with status 3 and the stacks of all goroutines.
//
// # What it sees
//
// Each of these faults was put back into the engine, and found within a minute from seed 1:
//
//	a rebalance that does not wait for kernels that      the checker (unordered copies and
//	compute drafts, and renumbers pages of all hosts     accesses), kernels on pages that are gone
//	tables of further beams without the pages of a       kernels without a page for a position,
//	chunk                                                in the third world
//	a call that is put back when the coordinator fails,  a hang
//	and then taken for one whose caller has gone
//	cross pages shared one by one                        rows of another input in cross pages
//
// Built with -race it has found a request that was read after its caller had taken it back.
package load
