// Package archtest holds the picture of the design: who may import whom, what a
// core may not do, how long a file may be. It reads the sources itself, with the
// standard library's parser and for all build tags, so a file that the present
// platform leaves out is held as well.
//
//	              messages
//	                 ▲
//	              windows
//	  ┌──────┬───────┼────────┬───────┐
//	tree   pool  offloader  events   gpu      never each other
//	  └──────┴───────┼────────┴───────┘
//	               actors
//	             ┌───┴───┐
//	           cmd     bench
//
// A package without a place in the picture fails the test: give it a place in
// picture.go, in the same change and with its reason.
package archtest
