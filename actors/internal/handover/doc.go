// Package handover is the format in which a sequence goes from one engine to another.
//
//	source                                        receiver
//	opening: shape of the pools, sequence, tokens ▶ pages are taken
//	       ◀────────────────────────────────────── answer: wanted, or refused and why
//	page, for each page that is wanted ───────────▶ the sequence is whole
//	       ◀────────────────────────────────────── answer: nothing, or refused and why
//
// There are answers only if the opening asks for them; without them the source sends every
// page. Both sides know the list of the pages and their lengths from the opening, so a page is
// its bytes and a checksum. Openings and answers are messages of JSON. Numbers are
// little-endian.
//
//	message    magic "kvho" · version 2 · zero 2 · length 8 · checksum 8 · check 8 · body
//	page       body · checksum 8
//
// A check is the XXH3 of 64 bits of the fields before it, so a reader knows that a length is
// what the source has written before it waits for so many bytes. A checksum is that of all
// bodies of one direction so far: the XXH3 of the last 128 KiB piece, seeded with the checksum
// of the pieces before. So a flipped bit is found behind its body, and a page that is missing,
// repeated or of another stream behind the next one.
//
// Magic, version and check have these places in every version from 4 on, so a stream of
// another version is refused by its version.
//
// The checksums find damage. They are no proof against someone who writes a stream on
// purpose: what such a stream can do is bounded by the checks of its values, and the
// connection has to be one that the host trusts, as the pages and the prompt are in it
// as they are.
package handover
