package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// notZero refuses a 0 that was typed for a flag where the absence of the flag, not 0, means
// its default.
func notZero(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "0" {
			return fmt.Errorf("--%s 0 is not at least 1", name)
		}
	}
	return nil
}

// within refuses a number of a flag beyond two limits.
func within(name string, value, low, high int) error {
	if value < low || value > high {
		return fmt.Errorf("--%s %d is not within %d and %d", name, value, low, high)
	}
	return nil
}

// atLeast refuses a number of a flag below a limit.
func atLeast(name string, value, limit int) error {
	switch {
	case value >= limit:
		return nil
	case limit == 0:
		return fmt.Errorf("--%s %d is negative", name, value)
	}
	return fmt.Errorf("--%s %d is not at least %d", name, value, limit)
}
