package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Flag is --store, the URL of a store, and --store-required.
type Flag struct {
	URL      string
	required bool
}

// Add adds the flags; usage is the help of --store.
func (f *Flag) Add(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&f.URL, "store", "", usage)
	flags.BoolVar(&f.required, "store-required", false,
		"end if the store cannot be opened; otherwise start without it and find it later")
}

// openTime is how long the start waits for the store.
const openTime = 2 * time.Second

// Open opens the store. One that cannot be opened yet keeps no engine from starting, unless the
// user says so; notes are told, in the name of the command.
func (f *Flag) Open(ctx context.Context, command string, notes io.Writer) (*stores.Later, error) {
	store := stores.OpenLater(func(ctx context.Context) (stores.Store,
		error) {
		return Open(ctx, f.URL)
	})
	limited, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := store.Open(limited); err != nil {
		err = fmt.Errorf("--store: %w", err)
		if f.required || errors.Is(err, stores.ErrURL) {
			return nil, errors.Join(err, store.Close())
		}
		fmt.Fprintf(notes, "%s: %v; starting without it\n", command, err)
	}
	return store, nil
}
