// Command peers measures the engine beside other cache managers, on real traces.
//
//	cd bench/peers && go run . -traces ../../../shared/traces
//
// It drives kvbm-logical (Rust, the block manager of NVIDIA Dynamo), vLLM and SGLang
// (Python) and this engine, each in a process of its own and in turn, with the same
// prompts, block size and capacity. A request is an admission: match the prompt, take
// pages for the rest, store it, release it. The command prints a table of the medians,
// the ratio to this engine, and the hits, which say whether the caches do the same work.
//
// What a peer needs is installed on the first run, under -cache: a crate through cargo,
// wheels through pip. A peer that cannot be had is skipped with a word. The module is
// apart from the engine's, so nothing of it reaches a host.
//
// What is timed. For this engine: Admit, and the Release that commits, through its actors, with the
// validation of the tokens, the page tables and the tickets; the records of the requests are used
// again. For the peers: hashing the prompt, matching, allocating with eviction, registering,
// releasing. For none of them: the making of the prompt's list of tokens. No process writes
// contents or runs kernels. Do not compare with a replay of this engine that does (demo replay
// without --kernels=false): its kernels run outside the time that counts, but between the calls,
// which find none of their code and data in the processor's caches then.
package main
