package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/plan"
	"github.com/kvactor/kvactor/cmd/internal/cacheflags"
	"github.com/kvactor/kvactor/cmd/internal/commandline"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
	"github.com/kvactor/kvactor/windows/hfconfig/gguf"
)

// planFlags are the flags of `demo plan`.
type planFlags struct {
	memory, hostMemory     commandline.Size
	hostFree               commandline.Size
	cache                  cacheflags.Flags
	link, indexType        string
	tp, seqLen, maxSeqLen  int
	tokensPerBlock, number int
	parameters             float64
	json, strict           bool
	resources              bool
}

// maxParameters is more than any model has.
const maxParameters = 1e15

// defaultMemory is the memory of the devices that most people plan for.
const defaultMemory = 80 << 30

func planCommand() *cobra.Command {
	f := planFlags{memory: defaultMemory}
	c := &cobra.Command{
		Use:   "plan MODEL [OPTIONS.yaml]",
		Short: "Say what a model's cache takes and what fits",
		Long: `plan reads the geometry of a model and says which pools its cache has, how memory
is split between them, how many sequences of which length fit and which pool
allows no more, what a number of sequences needs, and how long a prefix takes to
come back from host memory.

MODEL is a Hugging Face config.json, the folder of one, a GGUF file (its header
is read), or a preset: ` + presetNames() + `.
A file or folder comes before a preset of the same name.
OPTIONS.yaml has the options of the cache: a kv_cache_config, alone or in a file
of TensorRT-LLM's options. Flags replace what it says.

Nothing is allocated and no device is needed.`,
		Example: `  demo plan Llama-3.1-8B --memory 60GiB --seq-len 8192
  demo plan ./Qwen3-Next-80B-A3B-Instruct --tp 4 --memory 40GiB
  demo plan gpt-oss-20b.gguf options.yaml --host-memory 64GiB --link h100-pcie5
  demo plan GPT-OSS-20B --sequences 64 --seq-len 4096 --json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(notZero(c.Flags(), "tokens-per-block", "seq-len", "max-seq-len"),
				f.check()); err != nil {
				return statusError{err, statusUsage}
			}
			return planModel(c, args, &f)
		},
	}
	flags := c.Flags()
	flags.Var(&f.memory, "memory",
		"free device memory, of which the cache takes free_gpu_memory_fraction")
	flags.Var(&f.hostMemory, "host-memory",
		"host memory for offloading, of each device (default: none)")
	flags.Var(&f.hostFree, "host-free",
		"host memory that is free for all devices (default: not checked)")
	flags.String("dtype", "", "element `type` of the cache (default: the model's)")
	flags.StringVar(&f.indexType, "index-dtype", "",
		"element `type` of a sparse attention's index: fp8, float16, bfloat16, float32 (default: fp8, "+
			"of a GGUF file float16)")
	flags.IntVar(&f.tp, "tp", 1,
		"`devices` that each layer is divided between; all sizes are of one of them")
	flags.IntVar(&f.seqLen, "seq-len", 0,
		"`tokens` of a typical sequence, for which memory is split (default: the longest)")
	flags.IntVar(&f.maxSeqLen, "max-seq-len", 0,
		"`tokens` of the longest sequence (default: the model's)")
	flags.IntVar(&f.tokensPerBlock, "tokens-per-block", 0, "`tokens` of a block (default 32)")
	flags.IntVar(&f.number, "sequences", 1, "say what so many `sequences` of --seq-len tokens need")
	flags.StringVar(&f.link, "link", sim.DefaultProfile, "`device` whose link host memory is behind: "+
		strings.Join(sim.Profiles(), ", "))
	flags.Float64Var(&f.parameters, "parameters", 0,
		"`parameters` that a token uses, to estimate the time of computing a prefix")
	flags.BoolVar(&f.strict, "strict", false,
		"refuse a model type that is not known, instead of reading it as plain attention, and keys "+
			"that nobody knows")
	flags.BoolVar(&f.resources, "resources", false,
		"say what each layer keeps, in which pool, and why")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of tables")
	f.cache.AddSet(flags)
	f.cache.Key(flags, "dtype", "dtype")
	f.cache.Key(flags, "tokens-per-block", "tokens_per_block")
	f.cache.Key(flags, "seq-len", "expected_seq_len")
	f.cache.KeyOf(flags, "host-memory", "host_cache_size", func() (string, error) {
		return strconv.FormatInt(int64(f.hostMemory), 10), nil
	})
	return c
}

// check refuses values that no plan can have.
func (f *planFlags) check() error {
	if err := cmp.Or(
		atLeast("tp", f.tp, 1), atLeast("seq-len", f.seqLen, 0), atLeast("max-seq-len", f.maxSeqLen, 0),
		atLeast("tokens-per-block", f.tokensPerBlock, 0), atLeast("sequences", f.number, 1),
	); err != nil {
		return err
	}
	switch {
	case f.memory == 0:
		return fmt.Errorf("--memory 0 holds no cache")
	case !(f.parameters >= 0 && f.parameters <= maxParameters): // nor NaN
		return fmt.Errorf("--parameters %g is not within 0 and %g", f.parameters, maxParameters)
	case !slices.Contains(sim.Profiles(), f.link):
		return fmt.Errorf("--link %s is none of %s", f.link, strings.Join(sim.Profiles(), ", "))
	}
	return nil
}

func planModel(c *cobra.Command, args []string, f *planFlags) error {
	if len(args) > 1 {
		f.cache.File = args[1]
	}
	cache, unread := f.cache.Read(windows.DefaultConfig())
	model, err := f.model(args[0], cache)
	if err != nil {
		return cmp.Or(unread, err)
	}
	if unread != nil { // with all else that is wrong with the options
		return windows.Join(unread, model.Configure(cache).Validate(model.Model))
	}
	link, err := sim.NamedProfile(f.link)
	if err != nil {
		return err
	}
	request := plan.Request{
		Name: filepath.Base(args[0]), Model: model, Cache: cache, DeviceBytes: int64(f.memory),
		Sequences: f.number, SeqLen: f.seqLen, Link: link, Parameters: f.parameters, Devices: f.tp,
		HostFree: int64(f.hostFree),
	}
	if model.Encodes() && cache.CrossKVCacheFraction == 0 {
		request.Cache.CrossKVCacheFraction = 0.5
		request.Model.Notes = append(request.Model.Notes,
			"cross_kv_cache_fraction is not given: half of the memory goes to the cross pool")
	}
	p, err := plan.Make(request)
	if err != nil {
		return err
	}
	if f.resources {
		if p.Resources, err = request.Declare(); err != nil {
			return err
		}
	}
	if f.json {
		encoder := json.NewEncoder(c.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(p)
	}
	return p.Print(c.OutOrStdout())
}

// model reads the geometry, of a file or folder if there is one of that name, else of a preset.
func (f *planFlags) model(name string, cache windows.Config) (hfconfig.Model, error) {
	if _, err := os.Stat(name); err == nil {
		return f.file(name, cache)
	}
	for preset, p := range windows.Presets() {
		if strings.EqualFold(preset, name) {
			return f.preset(preset, p, cache)
		}
	}
	return hfconfig.Model{}, fmt.Errorf("%s is neither a file nor one of the presets %s", name,
		presetNames())
}

// preset divides a preset between the devices.
func (f *planFlags) preset(
	name string, p windows.Preset, cache windows.Config,
) (_ hfconfig.Model, err error) {
	if f.maxSeqLen > 0 {
		p.MaxSeqLen = f.maxSeqLen
	}
	if d := cache.MambaSSMCacheDType; len(p.States) > 0 && d != "" && d != windows.AutoDType {
		return hfconfig.Model{},
			fmt.Errorf("mamba_ssm_cache_dtype %s needs a config.json: the states of %s have one size", d,
				name)
	}
	p.Model, err = p.OfRank(f.tp)
	return hfconfig.Model{Preset: p}, err
}

// file reads a config.json, the folder of one, or the header of a GGUF file.
func (f *planFlags) file(name string, cache windows.Config) (hfconfig.Model, error) {
	o := hfconfig.Options{TensorParallel: f.tp, StateDType: cache.MambaSSMCacheDType,
		MaxSeqLen: f.maxSeqLen, Strict: f.strict, IndexDType: f.indexType}
	read := hfconfig.Open
	if gguf.IsFile(name) {
		read = gguf.Open
	}
	m, err := read(name, o)
	if err != nil && !strings.Contains(err.Error(), name) {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, err
}

// presetNames lists the presets.
func presetNames() string { return strings.Join(slices.Sorted(maps.Keys(windows.Presets())), ", ") }
