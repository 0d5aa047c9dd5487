package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Attached lists what the pages cache, in the order of the pages.
func (p *Pool) Attached() []protocol.PageBlock {
	var list []protocol.PageBlock
	for i := range p.pages {
		if g := &p.pages[i]; g.stored() {
			list = append(list, protocol.PageBlock{Page: messages.PageID(i), Block: g.block})
		}
	}
	return list
}

// Caches is the block that a page caches, or NoBlock.
func (p *Pool) Caches(page messages.PageID) protocol.BlockID { return p.pages[page].block }

// Holds tells whether a sequence or a pin holds a page.
func (p *Pool) Holds(page messages.PageID) bool { return !p.pages[page].idle() }

// UseOf is the latest use of what a page caches, if that is the block; else 0.
func (p *Pool) UseOf(page messages.PageID, block protocol.BlockID) protocol.Use {
	if int(page) < len(p.pages) && p.pages[page].block == block {
		return p.pages[page].use
	}
	return 0
}
