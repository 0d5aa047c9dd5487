// Package cacheflags reads the configuration of a cache from a command line: a file, flags that
// stand for a key of it, and keys by their names. All of them are read by package kvconfig.
package cacheflags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// Flags are the flags of a command that configure a cache. What comes later replaces what comes
// before: the file, then flags that stand for a key, then --set.
type Flags struct {
	File string // of --config; a command may set it instead
	name string // what errors call the file
	set  []string
	keys []key
}

// key is a flag that stands for a key.
type key struct {
	flag  *pflag.Flag
	name  string
	value func() (string, error)
}

// Add adds --config and --set.
func (f *Flags) Add(flags *pflag.FlagSet) {
	f.name = "--config "
	flags.StringVar(&f.File, "config", "",
		"`file` with a cache configuration in YAML or JSON, or with TensorRT-LLM's options")
	f.AddSet(flags)
}

// AddSet adds --set alone, for a command that takes the file as an argument.
func (f *Flags) AddSet(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.set, "set", nil,
		"`key=value` of the cache configuration, such as max_tokens=65536; comes before the file")
}

// Key makes a flag stand for a key: its text is the value, if it is given.
func (f *Flags) Key(flags *pflag.FlagSet, flag, name string) {
	is := flags.Lookup(flag)
	f.KeyOf(flags, flag, name, func() (string, error) { return is.Value.String(), nil })
}

// KeyOf is Key for a flag that has another unit or form than the key.
func (f *Flags) KeyOf(flags *pflag.FlagSet, flag, name string, value func() (string, error)) {
	f.keys = append(f.keys, key{flags.Lookup(flag), name, value})
}

// Read returns a configuration with what the flags and the file say. It reads all of them, and
// returns what could be read, also with an error.
func (f *Flags) Read(base windows.Config) (windows.Config, error) {
	err := f.readFile(&base)
	for _, k := range f.keys {
		if !k.flag.Changed {
			continue
		}
		value, wrong := k.value()
		if wrong == nil {
			wrong = kvconfig.Set(&base, k.name, value)
		}
		err = join(err, "--"+k.flag.Name, wrong)
	}
	for _, text := range f.set {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			err = join(err, "--set "+text, errors.New("want key=value"))
			continue
		}
		err = join(err, "--set", kvconfig.Set(&base, strings.TrimSpace(name), value))
	}
	return base, err
}

// readFile reads the file, if there is one.
func (f *Flags) readFile(c *windows.Config) error {
	if f.File == "" {
		return nil
	}
	file, err := os.Open(f.File)
	if err != nil {
		return fmt.Errorf("%s%w", f.name, err)
	}
	defer file.Close()
	if err := kvconfig.MergeYAML(c, file); err != nil { // JSON is YAML
		return fmt.Errorf("%s%s: %w", f.name, f.File, err)
	}
	return nil
}

// join adds an error, with the flag that it is about.
func join(all error, flag string, err error) error {
	switch {
	case err == nil:
		return all
	case all == nil:
		return fmt.Errorf("%s: %w", flag, err)
	default:
		return fmt.Errorf("%w; %s: %w", all, flag, err)
	}
}
