// Package handover defines the format in which a sequence moves from one engine to another.
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
// A check is the 64-bit XXH3 of the fields before it, so a reader knows that a length is genuine
// before it waits for that many bytes. A checksum covers all bodies of one direction so far: the
// XXH3 of the last 128 KiB piece, seeded with the checksum of the pieces before. So a flipped bit
// is found after its body, and a page that is missing, repeated or of another stream is found after
// the next one.
//
// Magic, version and check have these places in every version from 4 on, so a stream of
// another version is refused by its version.
//
// The checksums find damage. They don't protect against a forged stream: only the checks of its
// values limit what it can do. The host must trust the connection, which carries the pages and the
// prompt unencrypted.
package handover
