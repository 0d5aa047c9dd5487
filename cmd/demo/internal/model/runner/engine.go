package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
)

// Config says how a model is run.
type Config struct {
	// Cache is the configuration of the cache; nil: the default. Pages and HostPages say what
	// memory it has. MaxTokens bounds Pages, and with a HostCacheSize HostPages are as many as fit.
	Cache          *windows.Config
	TokensPerBlock int // 0: those of Cache
	// Pages are those of each pool on the device. 0: enough for two of the longest
	// sequences, and in state pools stateSequences working pages and as many
	// checkpoints.
	Pages     int
	HostPages int                // of each pool in host memory
	States    windows.PageCounts // of each state pool, instead of the two above; zero: none
	Chunk     int                // tokens of a prompt that are computed at a time; 0: all
	NoReuse   bool               // store and match nothing
	DType     windows.DType      // of the cache; "": that of Cache, float32 if it is auto
	MaxLen    int                // of a sequence; 0: what the model is made for, at most 8192
	Workers   int                // that compute; 0: one for each processor
	Checked   bool               // report every access to pages that nothing orders
	// not 0: on a simulated device with this schedule, for tests; 0: on gpu/host
	Seed    int64
	Options []actors.Option    // of the engine
	Fetch   time.Duration      // that an admission waits for the engine's store, if it has one
	Trace   func(gpu.Transfer) // is told of each batch of copies; nil: nothing is
	// Adjust changes the cache configuration before the engine starts. Nil: not.
	Adjust func(*windows.Config)
}

// maxLen bounds the length of sequences unless Config.MaxLen says otherwise.
const maxLen = 8192

// stateSequences is how many sequences of a recurrent model can run at a time by
// default: as many as a scheduler runs unless it is told otherwise.
const stateSequences = 16

// setDefaults fills in defaults.
func (c *Config) setDefaults(m *model.Model) error {
	if c.Cache == nil {
		cache := windows.DefaultConfig()
		c.Cache = &cache
	}
	if c.TokensPerBlock == 0 {
		c.TokensPerBlock = c.Cache.TokensPerBlock
	}
	if c.DType == "" && c.Cache.DType != windows.AutoDType {
		c.DType = windows.DType(c.Cache.DType)
	}
	if c.DType == "" {
		c.DType = windows.Float32
	}
	if c.MaxLen == 0 {
		c.MaxLen = min(m.MaxLen, maxLen)
	}
	if c.Chunk < 0 || c.Pages < 0 || c.HostPages < 0 {
		return fmt.Errorf("chunks of %d tokens, %d pages, %d host pages: none may be negative", c.Chunk,
			c.Pages, c.HostPages)
	}
	if c.Chunk%c.TokensPerBlock != 0 {
		return fmt.Errorf("a chunk of %d tokens is not a multiple of %d, the tokens of a block", c.Chunk,
			c.TokensPerBlock)
	}
	return nil
}

// counts are the pages of a pool.
func (c *Config) counts(p windows.Pool) windows.PageCounts {
	n := windows.PageCounts{Primary: c.Pages, Secondary: c.HostPages}
	state := p.Kind == windows.KindState
	switch {
	case state && c.States.Primary > 0:
		n = c.States
	case c.Pages > 0:
	case state:
		n.Primary = 2 * stateSequences
	default:
		n.Primary = 2 * ((c.MaxLen-1)/p.TokensPerBlock + 2)
	}
	if most := c.Cache.MaxTokens; most > 0 && !state {
		n.Primary = min(n.Primary, (most-1)/p.TokensPerBlock+1)
	}
	return n
}

// Runner is a model on an engine of its own. One goroutine at a time uses it.
type Runner struct {
	Model  *model.Model
	Engine *kvactor.Engine
	Config Config

	exec    *model.Executor
	workers *attention.Workers
	device  device
	hazards *check.Device // nil: unchecked
	launch  gpu.Launcher
	sync    func(context.Context, gpu.Ticket) error
	compute gpu.Stream
	pools   []windows.Pool // by PoolID, the cross pool last
	handles []gpu.Pool
	pending []*kernel // launched, and not waited for yet
}

// Open starts an engine for a model.
func Open(m *model.Model, c Config) (*Runner, error) {
	if err := c.setDefaults(m); err != nil {
		return nil, err
	}
	geometry, limits := m.Geometry(c.MaxLen, c.DType)
	cache, err := c.cache(limits)
	if err != nil {
		return nil, err
	}
	if m.Encodes() {
		cache.CrossKVCacheFraction = cmp.Or(cache.CrossKVCacheFraction, 0.5)
	}
	if c.Adjust != nil {
		c.Adjust(&cache)
	}
	r := &Runner{Model: m}
	if r.pools, err = windows.Pools(geometry, cache); err != nil {
		return nil, err
	}
	if cross, ok := windows.CrossPool(geometry, cache); ok {
		r.pools = append(r.pools, cross)
	}
	if cache.HostCacheSize > 0 && c.HostPages == 0 {
		c.HostPages = int(cache.HostCacheSize / pageBytes(r.pools))
	}
	if c.HostPages > 0 {
		cache.HostCacheSize = 1 // the exact count is HostPages
	}
	r.Config = c
	if err := r.start(geometry, cache); err != nil {
		return nil, err
	}
	if err := r.scale(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// stateTypes are what mamba_ssm_cache_dtype may say.
var stateTypes = []string{"", windows.AutoDType, string(windows.Float32)}

// cache is the configuration with what the model says. What would compute another model is
// refused.
func (c *Config) cache(limits []int) (windows.Config, error) {
	cache := *c.Cache
	given := cache.MaxAttentionWindow
	for layer, limit := range limits {
		if given != nil && (len(given) == 0 || min(given[layer%len(given)], c.MaxLen) != limit) {
			return cache, fmt.Errorf("max_attention_window %v: layer %d of the model has %d",
				given, layer, limit)
		}
	}
	switch {
	case cache.SinkTokenLength != 0:
		return cache, fmt.Errorf("sink_token_length %d: the model has no sinks",
			cache.SinkTokenLength)
	case !slices.Contains(stateTypes, cache.MambaSSMCacheDType):
		return cache, fmt.Errorf("mamba_ssm_cache_dtype %s: states are float32",
			cache.MambaSSMCacheDType)
	}
	cache.TokensPerBlock, cache.MaxAttentionWindow = c.TokensPerBlock, limits
	cache.DType = windows.AutoDType
	cache.EnableBlockReuse = cache.EnableBlockReuse && !c.NoReuse
	return cache, nil
}

// pageBytes is the size of a page of each pool.
func pageBytes(pools []windows.Pool) (sum int64) {
	for _, p := range pools {
		sum += p.PageBytes()
	}
	return sum
}

// start makes the device, the engine and the executor.
func (r *Runner) start(geometry windows.Model, cache windows.Config) (err error) {
	counts, memory := make([]windows.PageCounts, len(r.pools)), int64(0)
	for i, p := range r.pools {
		counts[i] = r.Config.counts(p)
		memory += int64(counts[i].Primary) * p.PageBytes()
	}
	if r.device, err = r.Config.open(memory); err != nil {
		return err
	}
	r.launch, r.sync = r.device, r.device.Sync
	device := gpu.Device(r.device)
	if r.Config.Checked {
		r.hazards = check.Wrap(r.device, check.Options{})
		device, r.launch, r.sync = r.hazards, r.hazards, r.hazards.Sync
	}
	if r.compute, err = device.NewStream("compute"); err != nil {
		return err
	}
	r.Engine, err = kvactor.Open(kvactor.Config{
		Model: geometry, Cache: cache, Pages: counts, Device: device,
	}, r.Config.Options...)
	if err != nil {
		return errors.Join(err, r.device.Close())
	}
	r.handles = r.Engine.DevicePools()
	r.workers = attention.NewWorkers(r.Config.Workers)
	r.exec, err = model.NewExecutor(r.Model, r.pools, r.workers)
	return err
}

// device is what a model can run on.
type device interface {
	gpu.Device
	gpu.Launcher
}

// open opens the device: the machine's memory, since the model is computed by this machine.
func (c *Config) open(memory int64) (device, error) {
	if c.Seed == 0 {
		return host.New(host.Config{MemoryBytes: memory, Poison: c.Checked, Trace: c.Trace})
	}
	if c.Trace != nil {
		return nil, errors.New("copies of a simulated device have simulated times, which are not traced")
	}
	return sim.New(sim.Config{MemoryBytes: memory, Seed: c.Seed})
}

// scale sets the scales of 8-bit caches: what a fixed text, the same for every
// model, needs. So they are a function of the model alone.
func (r *Runner) scale() error {
	if r.Config.DType != windows.Int8 && r.Config.DType != windows.FP8 {
		return nil
	}
	scales, err := model.Calibrate(r.Model, r.Config.DType, r.workers)
	if err != nil {
		return err
	}
	if err := r.Engine.SetScales(context.Background(), scales); err != nil {
		return err
	}
	kept, err := r.Engine.Scales(context.Background())
	if err != nil {
		return err
	}
	for _, s := range kept {
		r.exec.SetScales(s.Layer, s.Cross, s.K, s.V)
	}
	return nil
}

// Close ends the engine and gives its memory back. Pages that sequences still
// held are an error.
func (r *Runner) Close() error {
	leaked, err := r.Engine.Close(context.Background())
	if err == nil && leaked > 0 {
		err = fmt.Errorf("%d pages leaked", leaked)
	}
	if r.workers != nil {
		r.workers.Close()
	}
	return errors.Join(err, r.device.Close())
}

// Hazards are the accesses so far that nothing ordered; none if they are not
// checked.
func (r *Runner) Hazards() []string {
	if r.hazards == nil {
		return nil
	}
	return r.hazards.Problems()
}
