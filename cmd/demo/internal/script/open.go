package script

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// The defaults of open.
const (
	defaultMaxSeqLen    = 4096
	defaultDeviceMemory = 64 << 20 // bytes
	defaultSeed         = 1
)

type openRequest struct {
	Model        modelLine  `json:"model"`
	Cache        *cacheLine `json:"cache"`
	Pages        *pagesLine `json:"pages"`
	DeviceMemory *int64     `json:"device_memory"`
	Seed         *int64     `json:"seed"`
	Store        *storeLine `json:"store"`
	Weights      string     `json:"weights,omitempty"`
}

type modelLine struct {
	Layers    int        `json:"layers"`
	KVHeads   headsLine  `json:"kv_heads"`
	HeadDim   int        `json:"head_dim"`
	DType     *string    `json:"dtype"`
	MaxSeqLen *int       `json:"max_seq_len"`
	State     *stateLine `json:"state"`
}

type stateLine struct {
	Layers []int `json:"layers"`
	Bytes  int64 `json:"bytes"`
}

// headsLine is a number or a list of them.
type headsLine struct {
	heads []int
	list  bool
}

func (l *headsLine) read(r *reader, path string, value []byte) {
	if l.list = kind(value) == "a list"; l.list {
		r.read(path, value, reflect.ValueOf(&l.heads).Elem())
		return
	}
	l.heads = make([]int, 1)
	r.read(path, value, reflect.ValueOf(l.heads).Index(0))
}

// value is the model. To the configuration a single value of a list is that of all layers.
func (l *modelLine) value() (windows.Model, error) {
	m := windows.Model{
		Layers: l.Layers, KVHeads: l.KVHeads.heads, HeadDim: l.HeadDim,
		DType:     windows.DType(or(l.DType, string(windows.Float16))),
		MaxSeqLen: or(l.MaxSeqLen, defaultMaxSeqLen),
	}
	if s := l.State; s != nil {
		m.States = []windows.State{{Layers: s.Layers, Bytes: s.Bytes}}
	}
	if l.KVHeads.list && len(m.KVHeads) == 1 && m.Layers > 1 {
		return m, refusals.New(messages.ErrConfigInvalid, "kv_heads has 1 values for %d layers",
			m.Layers)
	}
	return m, nil
}

// cacheLine is the cache configuration over its defaults, as files of it are read. Wrong types are
// faults of shape; unknown names and wrong values are problems of the configuration, reported with
// all others.
type cacheLine struct {
	config  windows.Config
	problem error
}

func (l *cacheLine) read(r *reader, path string, value []byte) {
	l.config = defaultCache()
	if r.object(path, value); r.err != nil {
		return
	}
	err := kvconfig.MergeSection(&l.config, path+".", value)
	if errors.Is(err, messages.ErrBadRequest) {
		r.fail("%v", err)
		return
	}
	l.problem = err
}

// defaultCache makes no copies that nothing asked for: they would make a script's stream of copies
// harder to follow.
func defaultCache() windows.Config {
	c := windows.DefaultConfig()
	c.OffloadAhead = false
	return c
}

// pagesLine is either one pair for all pools or one for each. Pool names begin with w, so the two
// cannot be mixed up.
type pagesLine struct {
	all    *countsLine
	byPool map[string]countsLine
}

type countsLine struct {
	Primary   int64 `json:"primary"`
	Secondary int64 `json:"secondary,omitempty"`
}

func (p *pagesLine) read(r *reader, path string, value []byte) {
	fields, into := r.object(path, value), reflect.ValueOf(&p.byPool)
	if fields["primary"] != nil || fields["secondary"] != nil || len(fields) == 0 {
		into = reflect.ValueOf(&p.all)
	}
	if r.err == nil {
		r.read(path, value, into.Elem())
	}
}

// setup checks the values: every problem of model, cache and pages in one
// refusal.
func (l *openRequest) setup() (Setup, error) {
	s := Setup{Cache: defaultCache(), DeviceMemory: or(l.DeviceMemory, defaultDeviceMemory),
		Seed: or(l.Seed, defaultSeed), Weights: l.Weights}
	if s.DeviceMemory < 1 {
		return s, bad("open", "device_memory %d is not 1 or more", s.DeviceMemory)
	}
	var err error
	s.Model, err = l.Model.value()
	problems := []error{err}
	if l.Cache != nil {
		s.Cache = l.Cache.config
		problems = append(problems, l.Cache.problem)
	}
	pools, err := windows.Pools(s.Model, s.Cache)
	if s.Cache.ExpectedSeqLen == 0 && s.Cache.PoolFractions == nil {
		s.Cache.ExpectedSeqLen = s.Model.MaxSeqLen // the protocol's default
	}
	problems = append(problems, err)
	if err == nil && s.Model.OnlyStates() {
		// Engines open such models; the protocol has no answers for them.
		problems = append(problems, refusals.New(messages.ErrConfigInvalid,
			"kv_heads is 0 in every layer: at least one must have keys and values"))
	}
	if l.Pages != nil {
		s.Pages, err = l.Pages.counts(pools)
		problems = append(problems, err)
	}
	if l.Store != nil {
		store, wrong := l.Store.value()
		s.Store, problems = &store, append(problems, wrong...)
	}
	s.Pools = pools
	return s, windows.Join(problems...)
}

// counts checks the page counts. Without pools, because the configuration is
// wrong, it checks the numbers alone.
func (p *pagesLine) counts(pools []windows.Pool) ([]windows.PageCounts, error) {
	var problems []error
	say := func(format string, args ...any) {
		problems = append(problems, refusals.New(messages.ErrConfigInvalid, format, args...))
	}
	check := func(c countsLine, of string) windows.PageCounts {
		if c.Primary < 1 || c.Primary > windows.MaxPages {
			say("pages%s: primary %d is not between 1 and %d", of, c.Primary, windows.MaxPages)
		}
		if c.Secondary < 0 || c.Secondary > windows.MaxPages {
			say("pages%s: secondary %d is not between 0 and %d", of, c.Secondary, windows.MaxPages)
		}
		return windows.PageCounts{Primary: int(c.Primary), Secondary: int(c.Secondary)}
	}
	if p.all != nil {
		return slices.Repeat([]windows.PageCounts{check(*p.all, "")}, len(pools)),
			windows.Join(problems...)
	}
	byName := make(map[string]windows.PageCounts, len(p.byPool))
	for _, name := range slices.Sorted(maps.Keys(p.byPool)) {
		byName[name] = check(p.byPool[name], fmt.Sprintf(" of %s", name))
	}
	if pools == nil {
		return nil, windows.Join(problems...)
	}
	counts := make([]windows.PageCounts, len(pools))
	for i, pool := range pools {
		c, ok := byName[pool.Name]
		if !ok {
			say("pages lacks pool %s", pool.Name)
		}
		delete(byName, pool.Name)
		counts[i] = c
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		say("pages names %q, which is no pool", name)
	}
	return counts, windows.Join(problems...)
}
