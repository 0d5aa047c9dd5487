// Package stores keeps pages beyond one machine's memory. A Store keeps objects by key
// in another process or on another machine: a folder, an object store, a Valkey
// server. Many engines may read and write one store. The package has the interface
// that a store implements, the keys and the format of the objects, and Memory, a store
// for tests. Packages blob and valkey beside it implement the interface on engines that
// exist; no package of the cache engine imports them.
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
// The version is that of the format, and the fingerprint that of the model and of the
// geometry of its pages (Geometry). Two engines share objects if and only if both are the
// same.
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
// All numbers are little-endian. The checksum is over the header before it and the
// content: the XXH3 of 128 bits of the content, high half first, seeded with the XXH3 of
// 64 bits of the header, then zeros. In a namespace with a salt the content is
// sealed with AES-256-GCM under a key that is derived from the salt, and the checksum is
// HMAC-SHA-256 under another: a reader of the store that does not know the salt learns
// the length of a page and nothing of its tokens or values, and cannot test a guess.
// Sealing is deterministic, so that two engines write the same object for the same page.
//
// # Trust
//
// Nothing that a store returns is trusted. Decode compares version, fingerprint,
// checksum, the block before, pool, tokens and items with what the reader asked for.
// Anything wrong makes the object a miss: an object of an older format, one of another
// model, one that was cut short, exchanged for another or changed.
package stores
