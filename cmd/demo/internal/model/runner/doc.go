// Package runner is a host of the engine that computes: it admits sequences,
// runs a model over the pages that the engine gives them, and commits what is
// computed. It batches contexts and generations, cuts prompts into chunks, grows
// sequences by tokens, drafts and beams, and rewinds and forks them.
//
//	Admit ──▶ Compute … Compute ──▶ Append ──▶ Compute ──▶ … ──▶ Release
//	pages     a chunk of each       a token    its logits         stored
//
// A step is one kernel on the compute stream of the simulated device: it waits
// for what the engine calls Ready, reads and writes pages through the device, and
// its ticket goes back to the engine as After. Engine access is in engine.go.
//
// The host keeps what the engine has no pages for: the State of recurrent layers.
// A model with such layers runs without reuse and cannot be rewound.
package runner
