// Package scripttest runs the scripts of a package and reads the arguments of their commands.
//
// A script is a file of github.com/cockroachdb/datadriven under testdata/scripts of the
// package that is tested: commands, and what each of them has to print.
package scripttest

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Serve carries out one command of a script and returns what it prints.
type Serve = func(t *testing.T, d *datadriven.TestData) string

// Walk runs each file below testdata/scripts. It calls open for each of them, so that scripts
// share no state.
func Walk(t *testing.T, open func(t *testing.T) Serve) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, open(t))
	})
}

// Numbers are the values of an argument; nil without it.
func Numbers(t *testing.T, d *datadriven.TestData, key string) (list []int) {
	t.Helper()
	for _, arg := range d.CmdArgs {
		if arg.Key != key {
			continue
		}
		for i := range arg.Vals {
			var n int
			arg.Scan(t, i, &n)
			list = append(list, n)
		}
	}
	return list
}

// Number is the first value of an argument, or otherwise without one.
func Number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	t.Helper()
	if list := Numbers(t, d, key); len(list) > 0 {
		return list[0]
	}
	return otherwise
}
