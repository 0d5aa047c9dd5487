package oracle

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Stats is the state of the model.
func (o *Oracle) Stats(context.Context) (inspect.Stats, error) {
	if err := o.begin(); err != nil {
		return inspect.Stats{}, err
	}
	s := inspect.Stats{
		Requests: o.requests, PromptTokens: o.promptTokens, ReusedTokens: o.reusedTokens, Sequences: len(o.sequences),
	}
	for _, p := range o.pool {
		s.Pools = append(s.Pools, inspect.PoolStats{
			Name: p.Name, Primary: o.counts(p, p.device), Secondary: o.counts(p, p.host), PoolCounters: p.counters,
		})
	}
	return s, nil
}

// Contents gives every block of the tree, blocks that no pool holds but that
// others stand behind among them, parents before children.
func (o *Oracle) Contents(context.Context) ([]protocol.Content, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var all []protocol.Content
	at := map[string]int{}
	for _, b := range o.byDepth() {
		for index := 0; index <= b.index; index++ {
			key := b.key[:min((index+1)*o.tpb, len(b.key))]
			n := name(b.namespace, key)
			if _, done := at[n]; done {
				continue
			}
			c := protocol.Content{Parent: -1, Namespace: b.namespace, Depth: index}
			if index > 0 {
				c.Parent = at[name(b.namespace, key[:index*o.tpb])]
			}
			at[n] = len(all)
			all = append(all, o.content(c, key))
		}
	}
	return all, nil
}

// content fills in the tokens and pages of the block with this key.
func (o *Oracle) content(c protocol.Content, key []symbol) protocol.Content {
	covered := false
	var covers []messages.Cover
	for _, s := range key[c.Depth*o.tpb:] {
		c.Tokens = append(c.Tokens, s.id)
		covers = append(covers, s.cover)
		covered = covered || s.cover.Covered
	}
	if covered {
		c.Covers = covers
	}
	b := o.find(c.Namespace, key)
	for _, p := range o.pool {
		at := protocol.Nowhere
		switch {
		case b == nil || b.at[p.id] == nil:
		case b.at[p.id].device != nil:
			at = protocol.OnDevice(messages.PageID(b.at[p.id].device.number))
		default:
			at = protocol.OnHost(messages.PageID(b.at[p.id].host.number))
		}
		c.Pages = append(c.Pages, at)
	}
	return c
}

// Rebalance is not part of the model.
func (o *Oracle) Rebalance(context.Context, map[string]float64) (messages.Rebalanced, error) {
	return messages.Rebalanced{}, refusals.New(messages.ErrNotSupported, "rebalance is not part of the model")
}

// Close ends the model and counts the device pages that sequences still hold.
func (o *Oracle) Close(context.Context) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	leaked := 0
	for _, p := range o.pool {
		for _, pg := range p.device {
			if len(o.holders(p, pg)) > 0 {
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

// Check finds contradictions in the model itself.
func (o *Oracle) Check(context.Context) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for i, b := range o.blocks {
		for _, c := range o.blocks[:i] {
			if name(b.namespace, b.key) == name(c.namespace, c.key) {
				problem("two blocks with the key %v", b.key)
			}
		}
		held := false
		for _, p := range o.pool {
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
	for _, p := range o.pool {
		for _, pg := range append(append([]*page{}, p.device...), p.host...) {
			if b := pg.block; b != nil && (!o.alive(b) || b.at[p.id] == nil || b.at[p.id].device != pg && b.at[p.id].host != pg) {
				problem("pool %s: page %d caches a block that is not stored there", p.Name, pg.number)
			}
		}
	}
	return errors.Join(problems...)
}
