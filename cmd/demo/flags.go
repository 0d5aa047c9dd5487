package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
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

// explainFlag names the flag, its value and what is wrong, each once.
func explainFlag(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, cause := invalid.GetFlag(), invalid.Unwrap()
	var number *strconv.NumError
	switch {
	case errors.As(cause, &number) && errors.Is(number.Err, strconv.ErrRange):
		cause = errors.New("it is out of range")
	case errors.As(cause, &number) && flag.Value.Type() == "bool":
		cause = errors.New("it is neither true nor false")
	case errors.As(cause, &number):
		cause = errors.New("it is not a number")
	case flag.Value.Type() == "duration":
		cause = errors.New("it is not a time such as 20s")
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, invalid.GetValue(), cause)
}
