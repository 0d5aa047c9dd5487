package resources

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Options are what a plan needs beside the resources.
type Options struct {
	// Strict follows the rules of AutoDeploy to the letter; see the package comment.
	Strict bool
	// Cache is the configuration. Windows of resources replace
	// max_attention_window.
	Cache windows.Config
	// MaxSeqLen is the length of the longest sequence in tokens.
	MaxSeqLen int
	// MaxSequences is how many sequences run at a time: the slots of local
	// resources.
	MaxSequences int
}

// Plan is what becomes of a collection. It does not change.
type Plan struct {
	// Model and Cache are for the engine that holds the managed resources. Reuse is
	// off in Cache if a local resource forbids it.
	Model windows.Model
	Cache windows.Config
	// Pools are those of the engine.
	Pools []windows.Pool
	// Decisions has an entry for each resource, in the order of the collection.
	Decisions []Decision
	// ReuseRefused says why nothing is reused although the configuration would
	// allow it; "": nothing is in the way.
	ReuseRefused string

	maxSequences, maxSeqLen int
	strict                  bool
	views                   map[string]View
	slotBytes               int64 // of all local resources of a sequence
}

// Plan decides on every resource and forms the pools. The error is a refusal that
// lists what is wrong with the options, or with the model that the managed
// resources make.
func (c *Collection) Plan(o Options) (*Plan, error) {
	if len(c.entries) == 0 {
		return nil, refusals.New(messages.ErrConfigInvalid,
			"no layer has declared a resource: see Collection.Add and Declare")
	}
	if o.MaxSequences < 1 {
		return nil, refusals.New(messages.ErrConfigInvalid, "max_sequences %d is not 1 or more",
			o.MaxSequences)
	}
	o.Cache = o.Cache.WithDefaults()
	c = c.resolved(o.Cache)
	p := &Plan{
		Cache: o.Cache, Decisions: c.decide(o.Strict), maxSequences: o.MaxSequences,
		maxSeqLen: o.MaxSeqLen,
		strict:    o.Strict, views: make(map[string]View),
	}
	// The model first: it also decides the windows of Cache, which Pools reads.
	p.model(o)
	if names := blockers(p.Decisions); len(names) > 0 && o.Cache.EnableBlockReuse {
		p.ReuseRefused = fmt.Sprintf("%s is local: its contents cannot be reused", names[0])
		if len(names) > 1 {
			p.ReuseRefused = fmt.Sprintf("%s are local: their contents cannot be reused",
				strings.Join(names, ", "))
		}
		// A prefix that is reused would begin without its local contents.
		p.Cache.EnableBlockReuse, p.Cache.HostCacheSize = false, 0
	}
	if err := p.Cache.Validate(p.Model); err != nil {
		return nil, err
	}
	pools, err := windows.Pools(p.Model, p.Cache)
	if err != nil {
		return nil, err
	}
	p.Pools = pools
	p.locate()
	return p, nil
}

// model makes the model of the managed resources. A layer with several states has one
// state of their sizes together, since they are copied and kept together: each of them
// begins at a boundary of 16 bytes. Layers without managed resources keep nothing as far
// as the engine is concerned. If any resource has a window, the windows of all layers
// are listed, with the longest sequence for those without one.
func (p *Plan) model(o Options) {
	layers := 0
	for _, d := range p.Decisions {
		layers = max(layers, d.Layer+1)
	}
	m := windows.Model{Layers: layers, MaxSeqLen: o.MaxSeqLen, KVHeads: make([]int, layers),
		Shapes: make([]windows.Shape, layers)}
	limits, states, kept := make([]int, layers), make([]int64, layers), make([]bool, layers)
	windowed, chunks, owners := false, make([]int, layers), make([]int, layers)
	for i := range limits {
		// Validate refuses windows below 2; MaxSeqLen itself is checked by Pools.
		limits[i], owners[i] = max(o.MaxSeqLen, 2), i
	}
	for _, d := range p.Decisions {
		if !d.Managed {
			continue
		}
		kept[d.Layer] = true
		if shared, ok := d.Resource.(SharedKV); ok {
			// The owner is before it, so its reach is known.
			owners[d.Layer], m.SharedKV = shared.Layer, owners
			limits[d.Layer], chunks[d.Layer] = limits[shared.Layer], chunks[shared.Layer]
			continue
		}
		kv, paged := d.Resource.(PagedKV)
		if !paged {
			states[d.Layer] = aligned(states[d.Layer]) + bytes(d.Resource)
			continue
		}
		m.KVHeads[d.Layer] = kv.NumKVHeads
		m.Shapes[d.Layer] = windows.Shape{
			HeadDim: kv.HeadDim, ValueDim: kv.ValueDim, KVFactor: kv.factor(),
			DType: kv.DType, Layout: kv.layout(), SideBytes: kv.SideBytes,
		}
		if kv.Window > 0 {
			limits[d.Layer], windowed = kv.Window, true
		}
		if kv.Chunk > 0 {
			chunks[d.Layer], m.AttentionChunk = kv.Chunk, chunks
		}
	}
	for l := range layers {
		if !kept[l] {
			m.NoCache = append(m.NoCache, l)
		}
	}
	if windowed {
		p.Cache.MaxAttentionWindow = limits
	}
	for l := range states {
		// The last state of a layer is padded too, so that every layer of a page begins at a boundary.
		states[l] = aligned(states[l])
	}
	m.States = windows.StatesOf(states)
	p.Model = m
}

// stateAlignment is the boundary at which each state of a layer begins, so that
// kernels can read it in words of 16 bytes.
const stateAlignment = 16

func aligned(n int64) int64 { return (n + stateAlignment - 1) / stateAlignment * stateAlignment }

// String draws the decisions with their reasons in the order of the collection, then
// the pools, the local memory, and whether anything is reused.
func (p *Plan) String() string {
	var b strings.Builder
	for _, d := range p.Decisions {
		where := "local"
		if d.Managed {
			where = "managed in " + d.Pool
		}
		fmt.Fprintf(&b, "%s: %s: %s (%s)\n", d.Name, d.Resource, where, d.Reason)
	}
	for _, pool := range p.Pools {
		fmt.Fprintf(&b, "pool %s\n", pool)
	}
	if p.slotBytes > 0 {
		fmt.Fprintf(&b, "local: %d B for each of %d sequences\n", p.slotBytes, p.maxSequences)
	}
	switch {
	case p.ReuseRefused != "":
		fmt.Fprintf(&b, "reuse is off: %s\n", p.ReuseRefused)
	case p.Cache.EnableBlockReuse:
		b.WriteString("reuse is on\n")
	default:
		b.WriteString("reuse is off, as configured\n")
	}
	return b.String()
}
