// Package readme holds README.md and docs to reality. It has tests only:
//
//   - the README's program is examples/minimal, all of it, with its output;
//   - every other block of Go in them is, line by line, part of an example here, of one of
//     package kvactor, or of a program in examples: all of these compile, run and
//     have their output checked;
//   - every command names packages, files and flags that exist;
//   - every link leads to a file of the repository, and to a heading in it.
//
// The README's conversation with `demo script` is held by a test of cmd/demo.
package readme
