package pool

import "github.com/kvactor/kvactor/messages"

// Attached lists what the pages cache, in the order of the pages.
func (p *Pool) Attached() []messages.PageBlock {
	var list []messages.PageBlock
	for i := range p.pages {
		if g := &p.pages[i]; g.stored() {
			list = append(list, messages.PageBlock{Page: messages.PageID(i), Block: g.block})
		}
	}
	return list
}
