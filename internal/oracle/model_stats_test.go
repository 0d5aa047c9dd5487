package oracle

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/messages/inspect"
)

// Stats is the state of the model.
func (o *Oracle) Stats(context.Context) (inspect.Stats, error) {
	if err := o.begin(); err != nil {
		return inspect.Stats{}, err
	}
	s := inspect.Stats{
		Requests: o.admission.requests, PromptTokens: o.admission.promptTokens,
		ReusedTokens: o.admission.reusedTokens, Sequences: len(o.references.sequences),
		Prompts: o.admission.prompts,
	}
	for _, p := range o.pools {
		s.Pools = append(s.Pools, inspect.PoolStats{
			Name: p.Name, Primary: o.references.counts(p, p.device),
			Secondary: o.references.counts(p, p.host), PoolCounters: p.counters,
		})
	}
	return s, nil
}

// Check finds contradictions in the model itself.
func (o *Oracle) Check(context.Context) error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	for i, b := range o.tree.blocks {
		for _, c := range o.tree.blocks[:i] {
			if name(b.namespace, b.key) == name(c.namespace, c.key) {
				problem("two blocks with the key %v", b.key)
			}
		}
		held := false
		for _, p := range o.pools {
			s := b.at[p.id]
			if s == nil {
				continue
			}
			held = true
			if s.device == nil && s.host == nil {
				problem("pool %s: block %v has a spot without a page", p.Name, b.key)
			}
			if s.device != nil && s.device.block != b || s.host != nil && s.host.block != b {
				problem("pool %s: a page of block %v caches another", p.Name, b.key)
			}
		}
		if !held {
			problem("block %v is in no pool", b.key)
		}
	}
	for _, p := range o.pools {
		for _, pg := range append(append([]*page{}, p.device...), p.host...) {
			if b := pg.block; b != nil && (!o.tree.alive(b) || b.at[p.id] == nil ||
				b.at[p.id].device != pg && b.at[p.id].host != pg) {
				problem("pool %s: page %d caches a block that is not stored there", p.Name, pg.number)
			}
		}
	}
	return errors.Join(problems...)
}
