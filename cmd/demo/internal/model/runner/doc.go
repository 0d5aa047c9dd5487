// Package runner is a host of the engine that computes: it admits sequences,
// runs a model over the pages that the engine gives them, and commits what is
// computed. It batches contexts and generations, cuts prompts into chunks, grows
// sequences by tokens, drafts and beams, and rewinds and forks them.
//
//	Admit ──▶ Compute … Compute ──▶ Append ──▶ Compute ──▶ … ──▶ Release
//	pages     a chunk of each       a token    its logits         stored
//
// A step is one kernel on the compute stream of the device: it waits
// for what the engine calls Ready, reads and writes pages through the device, and
// its ticket goes back to the engine as After. Engine access is in engine.go.
//
// Keys, values and the states of recurrent layers are in the engine's pages and
// nowhere else. What a step has computed behind a sampled token, its drafts, is
// rewound where it is wrong; states.go says how, with recurrent layers.
package runner
