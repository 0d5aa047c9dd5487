// Package handover is the format in which a sequence goes from one engine to another.
//
//	source                                        receiver
//	preamble: version, fingerprint ──────────────▶
//	frame: geometry of the pools ────────────────▶ compared field by field
//	frame: sequence: namespace, retention … ─────▶
//	frame: tokens ───────────────────────────────▶
//	frame: items, if there are any ──────────────▶ pages are taken
//	       ◀───────────────────────────────────── frame: wanted, one bit a page
//	frame: page, for each page ──────────────────▶
//	frame: end, the digest of all frames ────────▶ the sequence is whole
//	       ◀───────────────────────────────────── frame: acknowledged, or refused and why
//
// Frames from the receiver are there only if the source has asked for them in the
// preamble; without them it sends every page. Numbers are little-endian.
//
//	preamble   magic "kvho" · version 2 · flags 2 · fingerprint 32 · check 8
//	frame      kind 1 · zero 3 · pool 4 · block 4 · number 4 · length 8 · checksum 8 · check 8 · body
//
// A check is the XXH3 of 64 bits of the fields before it, so a reader knows that a length is
// what the source has written before it waits for so many bytes. A checksum is that of the
// body: of its pieces of 128 KiB, each seeded with the one before. Frames of one direction are
// numbered from 0. The digest is the SHA-256 over the preamble and the headers of all frames
// before, whose checksums stand for the bodies. So a flipped bit is found in its frame, and
// a frame that is missing, repeated or of another stream is found by its number or by the
// digest.
//
// The preamble has the same layout and check in every version from 2 on, so a stream of
// another version is refused by its version.
//
// The checksums find damage. They are no proof against someone who writes frames on
// purpose: what such a stream can do is bounded by the checks of its values, and the
// connection has to be one that the host trusts, as the pages and the prompt are in it
// as they are.
package handover
