// Package readme checks README.md and docs against the code. It has only tests:
//
//   - the README's program is examples/minimal, all of it, with its output;
//   - every other block of Go in them is, line by line, part of an example here, of one of
//     package kvactor, or of a program in examples: all of these compile, run and
//     have their output checked;
//   - every command names packages, files and flags that exist;
//   - every link leads to a file of the repository, and to a heading in it.
//
// A test of cmd/demo checks the README's conversation with `demo script`.
package readme
