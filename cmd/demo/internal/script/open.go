package script

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The defaults of open.
const (
	defaultMaxSeqLen    = 4096
	defaultDeviceMemory = 64 << 20 // bytes
	defaultSeed         = 1
)

// openLine is an open request of the right shape. Problems are those of values
// that the configuration's type cannot express; they join what Validate says.
type openLine struct {
	model        windows.Model
	cache        windows.Config
	problems     []error
	pages        *pagesLine
	deviceMemory int64
	seed         int64
	store        *storeLine // nil: none
	weights      string
}

// pagesLine is either one pair for all pools or one for each.
type pagesLine struct {
	all    *countsLine
	byPool map[string]countsLine
}

type countsLine struct{ primary, secondary int64 }

func (o *object) open() openLine {
	l := openLine{
		deviceMemory: o.intOr("device_memory", defaultDeviceMemory),
		seed:         o.intOr("seed", defaultSeed),
		cache:        windows.DefaultConfig(),
	}
	// Copies that nothing asked for would make a script's stream of copies
	// harder to follow.
	l.cache.OffloadAhead = false
	if m := o.child("model"); m != nil {
		l.model = m.model()
		if heads, ok := m.take("kv_heads"); ok && heads.kind() == kindList && len(l.model.KVHeads) == 1 &&
			l.model.Layers > 1 {
			// To the configuration a single value is that of all layers.
			l.problems = append(l.problems, refusals.New(messages.ErrConfigInvalid,
				"kv_heads has 1 values for %d layers", l.model.Layers))
		}
	} else {
		o.missing("model")
	}
	l.problems = append(l.problems, o.cache(&l.cache))
	l.pages = o.pages()
	l.store = o.store()
	if w := o.optText("weights"); w != nil {
		l.weights = *w
	}
	o.end()
	return l
}

func (o *object) model() windows.Model {
	m := windows.Model{
		Layers: int(o.int("layers")), KVHeads: o.kvHeads(), HeadDim: int(o.int("head_dim")),
		DType: windows.Float16, MaxSeqLen: int(o.intOr("max_seq_len", defaultMaxSeqLen)),
	}
	if d := o.optText("dtype"); d != nil {
		m.DType = windows.DType(*d)
	}
	if s := o.child("state"); s != nil {
		m.States = []windows.State{{Layers: s.layers(), Bytes: s.int("bytes")}}
		s.end()
	}
	o.end()
	return m
}

// layers is a list of layers, which must be there.
func (o *object) layers() []int {
	if !o.has("layers") {
		o.missing("layers")
	}
	return o.ints("layers")
}

// kvHeads is a number or a list of them.
func (o *object) kvHeads() []int {
	value, ok := o.take("kv_heads")
	switch {
	case !ok:
		o.missing("kv_heads")
		return nil
	case value.kind() == kindList:
		return o.ints("kv_heads")
	}
	return []int{int(o.int("kv_heads"))}
}

// ints is a list of integers; nil if there is none.
func (o *object) ints(name string) []int {
	var list []int
	found := o.list(name, func(at string, item raw) {
		n, ok := integer(item)
		if !ok {
			o.wrong(at, item, "an integer")
		}
		list = append(list, int(n))
	})
	if found && list == nil {
		return []int{}
	}
	return list
}

// pages reads {"primary","secondary"}, or an object of those by pool name. Pool
// names begin with w, so the two cannot be mixed up.
func (o *object) pages() *pagesLine {
	p := o.child("pages")
	if p == nil {
		return nil
	}
	if p.has("primary") || p.has("secondary") || len(p.fields) == 0 {
		c := p.counts()
		return &pagesLine{all: &c}
	}
	line := &pagesLine{byPool: make(map[string]countsLine)}
	for _, f := range p.fields {
		if c := p.child(f.name); c != nil {
			line.byPool[f.name] = c.counts()
		}
	}
	return line
}

func (o *object) counts() countsLine {
	c := countsLine{primary: o.int("primary"), secondary: o.intOr("secondary", 0)}
	o.end()
	return c
}

// setup checks the values: every problem of model, cache and pages in one
// refusal.
func (l openLine) setup() (Setup, error) {
	s := Setup{Model: l.model, Cache: l.cache, DeviceMemory: l.deviceMemory, Seed: l.seed,
		Weights: l.weights}
	if l.deviceMemory < 1 {
		return s, bad("open", "device_memory %d is not 1 or more", l.deviceMemory)
	}
	if s.Cache.ExpectedSeqLen == 0 && s.Cache.PoolFractions == nil {
		s.Cache.ExpectedSeqLen = l.model.MaxSeqLen // the protocol's default
	}
	problems := slices.Clone(l.problems)
	pools, err := windows.Pools(l.model, l.cache)
	problems = append(problems, err)
	if err == nil && l.model.OnlyStates() {
		// Engines open such models; the protocol has no answers for them.
		problems = append(problems, refusals.New(messages.ErrConfigInvalid,
			"kv_heads is 0 in every layer: at least one must have keys and values"))
	}
	if l.pages != nil {
		s.Pages, err = l.pages.counts(pools)
		problems = append(problems, err)
	}
	if l.store != nil {
		store, wrong := l.store.value()
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
		if c.primary < 1 || c.primary > windows.MaxPages {
			say("pages%s: primary %d is not between 1 and %d", of, c.primary, windows.MaxPages)
		}
		if c.secondary < 0 || c.secondary > windows.MaxPages {
			say("pages%s: secondary %d is not between 0 and %d", of, c.secondary, windows.MaxPages)
		}
		return windows.PageCounts{Primary: int(c.primary), Secondary: int(c.secondary)}
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
