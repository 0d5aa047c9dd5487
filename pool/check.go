package pool

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
)

// Check verifies the invariants and joins everything that is wrong:
//
//  1. A page without holders may be evicted if it caches a block, and is in the list of free
//     pages otherwise. Other pages are in neither.
//  2. Only pages that cache a block have pins, covered references are references, and no block
//     is cached twice.
//  3. The counts equal a recount.
//  4. What the order says of itself, see evict.Core.Check.
//
// It costs O(pages) and allocates, so it runs after each operation only in builds with the tag
// invariants, and once after Rebuilt.
func (p *Pool) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	listed := make([]int, len(p.pages))
	for _, i := range p.free {
		if int(i) >= len(listed) || i < 0 {
			say("page %d of %d is free", i, len(listed))
			continue
		}
		listed[i]++
	}
	blocks, held := make(map[protocol.BlockID]int), 0
	for i := range p.pages {
		g := &p.pages[i]
		if g.held() {
			held++
		}
		if g.references < 0 || g.pins < 0 || g.covered < 0 || g.covered > g.references ||
			g.pins > 0 && !g.stored() {
			say("page %d with block %d has %d references, %d of them covered, and %d pins",
				i, g.block, g.references, g.covered, g.pins)
		}
		if waits := g.unheld() && g.stored(); waits != p.order.Waits(int32(i)) ||
			g.stored() != p.order.Page(int32(i)).Stored {
			say("page %d with %d references, %d pins and block %d may be evicted: %v",
				i, g.references, g.pins, g.block, p.order.Waits(int32(i)))
		}
		if free := g.free(); free && listed[i] != 1 || !free && listed[i] > 0 {
			say("page %d with %d references and block %d is listed as free %d times",
				i, g.references, g.block, listed[i])
		}
		if !g.stored() {
			continue
		}
		// A block on two pages would be evicted once and stay matched: the tree knows one page
		// for each block.
		if other, twice := blocks[g.block]; twice {
			say("pages %d and %d cache block %d", other, i, g.block)
		}
		blocks[g.block] = i
	}
	if held != p.held {
		say("%d pages are held, %d counted", held, p.held)
	}
	if err := p.order.Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
