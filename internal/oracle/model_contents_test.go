package oracle

import (
	"context"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Contents gives every block of the tree, blocks that no pool holds but that
// others stand behind among them, parents before children.
func (o *Oracle) Contents(context.Context) ([]protocol.Content, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var all []protocol.Content
	at := map[string]int{}
	for _, b := range o.tree.byDepth() {
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
			all = append(all, o.tree.content(c, key))
		}
	}
	return all, nil
}

// content fills in the tokens and pages of the block with this key.
func (t *tree) content(c protocol.Content, key []symbol) protocol.Content {
	covered := false
	var covers []messages.Cover
	for _, s := range key[c.Depth*t.tpb:] {
		c.Tokens = append(c.Tokens, s.id)
		covers = append(covers, s.cover)
		covered = covered || s.cover.Covered
	}
	if covered {
		c.Covers = covers
	}
	b := t.find(c.Namespace, key)
	for _, p := range t.pools {
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
