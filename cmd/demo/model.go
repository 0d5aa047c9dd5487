package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/windows"
)

func modelCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "model",
		Short: "Run a language model over the engine's pages",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(modelRunCommand(), modelGetCommand())
	return c
}

// cacheTypes are the element types that --dtype takes.
var cacheTypes = []windows.DType{windows.Float32, windows.Float16, windows.BFloat16, windows.Int8,
	windows.FP8}

// runBlock are the tokens of a block, unless the user says so.
const runBlock = 32

func modelRunCommand() *cobra.Command {
	var config runner.Config
	var store storeFlag
	var cache cacheFlags
	c := &cobra.Command{
		Use:   "run FOLDER",
		Short: "Answer requests with a model, JSON lines on standard input",
		Long: `run loads a model, a folder with config.json and .safetensors files or a GGUF
file, and answers requests, JSON lines on standard input, one after the other on
one engine whose pages hold all keys and values, and the states of recurrent layers:

  {"tokens":[1,2,3],"encoder":[…],"new":40,"logits":true,"salt":"…"}

What is answered depends on the model and the request alone, to the bit, never on
what was cached. The answer tells that, too: cached_tokens, onboarded_pages, and
first_logits_position, the first position that was computed.`,
		Example: `  echo '{"tokens":[5,7,11,13],"new":8}' | demo model run cmd/demo/internal/model/testdata/llama_gqa`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := cmp.Or(
				atLeast("pages", config.Pages, 0), atLeast("host-pages", config.HostPages, 0),
				atLeast("chunk", config.Chunk, 0), cache.read(c.Flags(), &config, runBlock),
			); err != nil {
				return statusError{err, statusUsage}
			}
			m, source, err := model.Load(args[0])
			if err != nil {
				return statusError{err, statusUsage}
			}
			store.notes = c.ErrOrStderr()
			closeStore, err := store.attach(c.Context(), &config, source.Files, args[0])
			if err != nil {
				return statusError{err, statusUsage}
			}
			r, err := runner.Open(m, config)
			if err != nil {
				return statusError{errors.Join(err, closeStore()), statusUsage}
			}
			defer func() { err = errors.Join(err, r.Close(), closeStore()) }()
			return r.Lines(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.Int("tokens-per-block", runBlock, "`tokens` of a block")
	f.IntVar(&config.Pages, "pages", 0,
		"device `pages` of each pool; 0: enough for two of the longest sequences")
	f.IntVar(&config.HostPages, "host-pages", 0, "`pages` of each pool in host memory; 0: none")
	f.IntVar(&config.Chunk, "chunk", 0,
		"`tokens` of a prompt that are computed at a time, a multiple of a block; 0: all")
	store.add(f)
	f.Bool("no-reuse", false, "store and reuse nothing")
	f.String("dtype", string(windows.Float32), dtypeHelp)
	f.BoolVar(&config.Checked, "check", false,
		"report every access to pages that nothing orders, as an error of the request")
	cache.add(f)
	return c
}

// dtypeHelp is the help of --dtype.
const dtypeHelp = "`type` of the elements of the cache: float32, float16, bfloat16, int8, fp8"

func cacheType(name string) (windows.DType, error) {
	for _, t := range cacheTypes {
		if string(t) == name {
			return t, nil
		}
	}
	return "", fmt.Errorf("--dtype %s is none of %s", name, strings.Trim(fmt.Sprint(cacheTypes), "[]"))
}

// known are the models that model get tells of.
var known = []model.Known{model.SmolLM2}

func modelGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Tell where a known model comes from and where it is looked for",
		Long: `get tells how to obtain a model that this program knows, smollm2, and where it is
looked for. If it is there its checksum is verified and its path printed. Nothing
is downloaded.`,
		Example: `  demo model get smollm2`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, k := range known {
				if k.Name != args[0] {
					continue
				}
				path, err := k.Find()
				if err != nil {
					fmt.Fprint(c.OutOrStdout(), k.Instructions())
					return nil //nolint:nilerr // a model that is not there is what get explains
				}
				if err := k.Verify(path); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), path)
				return nil
			}
			return statusError{fmt.Errorf("no model %q: there is smollm2", args[0]), statusUsage}
		},
	}
}
