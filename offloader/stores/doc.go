// Package stores keeps pages beyond one machine's memory. A Store keeps objects by key in another
// process or on another machine: a folder, an object store, a Valkey server. Many engines may read
// and write one store. The package has the interface that a store implements, the keys and the
// format of the objects, and Memory, a store for tests. Packages blob and valkey implement the
// interface on existing storage systems; no package of the cache engine imports them.
//
// # Keys
//
// An object is one block's page in one pool. Its key depends on everything that its
// bytes depend on:
//
//	root      = SHA-256(version, fingerprint, LoRA, encoder) without a salt
//	          = HMAC-SHA-256(salt; the same)                 with a salt
//	block key = SHA-256(block key of the block before, tokens and items of the block)
//	key       = SHA-256(block key, pool)
//
// The version is the format's. The fingerprint identifies the model and the geometry of its pages
// (Geometry). Two engines share objects if and only if both are the same.
//
// # Objects
//
//	offset  bytes
//	0       4      "kvob"
//	4       2      version of the format
//	6       1      flags: sealed, compressed
//	7       1      0
//	8       32     fingerprint
//	40      32     checksum
//	72             content:
//	  0     32       block key of the block before
//	  32    4        pool
//	  36    4        number of tokens
//	  40    4        1 if items cover some of the tokens, else 0
//	  44    4        bytes of the page
//	  48    4 each   tokens
//	        41 each  covers, if any: covered, hash, position
//	                 the page, perhaps compressed
//
// All numbers are little-endian. The checksum is over the header before it and the content: the
// 128-bit XXH3 of the content, high half first, seeded with the 64-bit XXH3 of the header, then
// zeros. In a namespace with a salt, the content is sealed with AES-256-GCM under a key derived
// from the salt, and the checksum is HMAC-SHA-256 under another key. A reader of the store that
// doesn't know the salt learns the length of a page but nothing about its tokens or values, and
// can't test a guess. Sealing is deterministic, so two engines write the same object for the same
// page.
//
// # Trust
//
// Nothing that a store returns is trusted. Decode compares version, fingerprint, checksum, the
// block before, pool, tokens and items with what the reader asked for. Anything wrong makes the
// object a miss, for instance if it is of an older format or of another model, or was cut short,
// swapped for another or changed.
package stores
