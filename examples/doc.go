// Package examples holds whole programs, one in each folder, with what they print in
// output.txt. Its test builds and runs them.
package examples
