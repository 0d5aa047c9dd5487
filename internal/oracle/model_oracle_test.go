package oracle

import (
	"context"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Oracle is the model of one engine. It is not safe for concurrent use.
//
// Its methods are the requests of a host. Each is carried out by the parts, which share
// the layout and know each other as the fields of their types say.
type Oracle struct {
	*layout
	clock       *clock
	log         *eventLog
	tree        *tree
	references  *references
	worth       *worth
	eviction    *eviction
	saver       *saver
	memory      *memory
	fetcher     *fetcher
	planner     *planner
	admission   *admission
	offering    *offering
	checkpoints *checkpoints
	steps       *steps

	pins    []*pin
	lastPin messages.PinID
	weights string // the epoch, which is a part of every namespace
	closed  bool
}

// named is a prefix in the namespace of the epoch.
func (o *Oracle) named(q messages.Prefix) messages.Prefix {
	q.Namespace.Weights = o.weights
	return q
}

// New starts a model with empty memory.
func New(cfg Config) *Oracle {
	l, c := newLayout(cfg), &clock{}
	log := &eventLog{layout: l}
	t := &tree{layout: l, clock: c, log: log}
	r := &references{layout: l, guarded: map[*page]bool{}}
	w, e := &worth{layout: l, tree: t}, &eviction{layout: l, references: r}
	s := &saver{layout: l, tree: t}
	m := &memory{layout: l, clock: c, log: log, tree: t, references: r, eviction: e, saver: s}
	f := &offering{layout: l, log: log, tree: t, memory: m, saver: s}
	k := &checkpoints{layout: l, log: log, tree: t, references: r, eviction: e, memory: m, saver: s}
	for _, p := range l.pools {
		log.created(p)
	}
	return &Oracle{
		weights: cfg.Weights, layout: l, clock: c, log: log, tree: t, references: r, worth: w,
		eviction: e, saver: s, memory: m, offering: f, checkpoints: k,
		fetcher: &fetcher{layout: l, clock: c, log: log, tree: t, references: r, eviction: e, memory: m,
			saver: s},
		planner:   &planner{layout: l, tree: t, references: r},
		admission: &admission{layout: l, clock: c, tree: t, references: r, memory: m, saver: s},
		steps:     &steps{layout: l, references: r, memory: m, offering: f, checkpoints: k, worth: w},
	}
}

// Pools describes the pools.
func (o *Oracle) Pools() []messages.PoolInfo {
	var all []messages.PoolInfo
	for i, p := range o.pools {
		all = append(all, messages.PoolInfo{
			ID: messages.PoolID(i), Name: p.Name, Kind: p.kind(), Window: p.Window, KVHeads: p.KVHeads,
			Layers:    p.Layers,
			PageBytes: p.PageBytes, PrimaryPages: p.Primary, SecondaryPages: p.Secondary,
		})
	}
	return all
}

// begin starts a request: time passes first, timers that have ended act.
func (o *Oracle) begin() error {
	if o.closed {
		return refusals.New(messages.ErrClosed, "the engine is closed")
	}
	o.saver.writeCandidates()
	o.clock.request++
	o.clock.now = o.cfg.Clock()
	clear(o.references.guarded)
	o.tree.expire()
	o.worth.appraise()
	return nil
}

// Rebalance is not part of the model.
func (o *Oracle) Rebalance(context.Context, map[string]float64) (messages.Rebalanced, error) {
	return messages.Rebalanced{}, refusals.New(messages.ErrNotSupported,
		"rebalance is not part of the model")
}

// Close ends the model and counts the device pages that sequences still hold.
func (o *Oracle) Close(context.Context) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	leaked := 0
	for _, p := range o.pools {
		for _, pg := range p.device {
			if len(o.references.holders(p, pg)) > 0 {
				leaked++
			}
		}
	}
	o.closed = true
	if o.cfg.Store != nil {
		o.cfg.Store.Store.Fail(0) // what has failed ends with the engine
	}
	return leaked, nil
}
