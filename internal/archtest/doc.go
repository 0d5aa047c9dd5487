// Package archtest tests the design: which package may import which, what a core may
// not do, how long files and functions may be, how many methods a type may have and
// how many names package messages may export, and that a comment begins with the name
// of what it documents. It reads the sources itself, with the standard library's parser
// and for all build tags, so files that the present platform leaves out are tested too.
//
//	              messages ◀── internal/protocol
//	                 ▲           ▲   what actors say to each other
//	              windows ───────┘
//	  ┌──────┬───────┼────────┬──────────┐
//	tree   pool  offloader  events  coordinator   gpu      never each other
//	  └──────┴───────┼────────┴──────────┴─────────┘
//	               actors
//	                 │
//	              kvactor                the module's root
//	             ┌───┴───┐
//	           cmd     bench
//
// A package without a place in the picture fails the test: give it a place in
// picture_test.go, in the same change and with its reason.
package archtest
