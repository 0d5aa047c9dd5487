package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/internal/cacheflags"
	"github.com/kvactor/kvactor/windows"
)

// cacheFlags configure the cache of a model that this program computes.
type cacheFlags struct{ cacheflags.Flags }

// keyFlags are flags that stand for a key, of commands that have them.
var keyFlags = map[string]string{
	"tokens-per-block": "tokens_per_block", "dtype": "dtype", "policy": "eviction_policy",
}

// add adds --config and --set, and makes the command's own flags, which it has already, stand
// for keys.
func (f *cacheFlags) add(flags *pflag.FlagSet) {
	f.Add(flags)
	for flag, key := range keyFlags {
		if flags.Lookup(flag) != nil {
			f.Key(flags, flag, key)
		}
	}
	if flags.Lookup("no-reuse") != nil {
		f.KeyOf(flags, "no-reuse", "enable_block_reuse", func() (string, error) {
			off, err := flags.GetBool("no-reuse")
			return strconv.FormatBool(!off), err
		})
	}
}

// read configures a runner: it has tokensPerBlock unless a flag or the file says another number.
func (f *cacheFlags) read(flags *pflag.FlagSet, c *runner.Config, tokensPerBlock int) error {
	if n, err := flags.GetInt("tokens-per-block"); err == nil && n < 1 {
		return atLeast("tokens-per-block", n, 1)
	}
	base := windows.DefaultConfig()
	base.TokensPerBlock = tokensPerBlock
	cache, err := f.Read(base)
	if err != nil {
		return err
	}
	if cache.DType != windows.AutoDType {
		if c.DType, err = cacheType(cache.DType); err != nil {
			return err
		}
	}
	c.Cache, c.TokensPerBlock = &cache, cache.TokensPerBlock
	switch block := c.TokensPerBlock; {
	case block < 1: // refused by the engine
	case !flags.Changed("chunk"):
		c.Chunk = (c.Chunk + block - 1) / block * block
	case c.Chunk%block != 0:
		return fmt.Errorf("--chunk %d is not a multiple of --tokens-per-block %d", c.Chunk, block)
	}
	if cache.HostCacheSize > 0 && !flags.Changed("host-pages") {
		c.HostPages = 0 // as many as fit
	}
	return nil
}
