package host

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Read gives the bytes of a page, until it is called again; nil if there is no
// such page. Nothing may be under way on the page.
type Read func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte

// Held is what a running sequence claims to hold.
type Held struct {
	Name     string    // for reports
	Computed int       // tokens whose KV is in the pages
	Beams    [][]Chain // the chain after each token, one list a beam
	Tables   messages.Tables
}

// Claims is all that is claimed of pages: by the tree and by sequences.
type Claims struct {
	Blocks    []protocol.Content // parents before children
	Sequences []Held
}

// maxProblems bounds a report: a broken copy spoils many rows, ten tell enough.
const maxProblems = 100

// Verifier checks the pages of one engine.
type Verifier struct {
	Layouts []Layout // by PoolID
	Read    Read

	pages    map[place]bool // checked in this run
	problems []string
	more     int // problems beyond maxProblems
}

// place is one page of one pool and tier.
type place struct {
	pool messages.PoolID
	tier messages.Tier
	page messages.PageID
}

// Verify checks every claimed row. It gives the number of pages it has seen,
// each counted once, and a sentence for each page that holds something else.
func (v *Verifier) Verify(c Claims) (checkedPages int, problems []string) {
	v.pages, v.problems, v.more = make(map[place]bool), []string{}, 0
	v.blocks(c.Blocks)
	for i := range c.Sequences {
		v.sequence(&c.Sequences[i])
	}
	if v.more > 0 {
		v.problems = append(v.problems, fmt.Sprintf("and %d problems more", v.more))
	}
	return len(v.pages), v.problems
}

// blocks checks the tree's pages.
func (v *Verifier) blocks(blocks []protocol.Content) {
	ends := make([]Chain, len(blocks)) // after each block's last token
	var chains []Chain
	for i := range blocks {
		b := &blocks[i]
		at := Root(b.Namespace)
		if b.Parent >= 0 {
			if b.Parent >= i {
				v.report("tree: block %d stands before its parent %d", i, b.Parent)
				continue
			}
			at = ends[b.Parent]
		}
		chains = chains[:0]
		for t, token := range b.Tokens {
			var cover messages.Cover
			if b.Covers != nil {
				cover = b.Covers[t]
			}
			at = at.Next(token, cover)
			chains = append(chains, at)
		}
		ends[i] = at
		for pool, location := range b.Pages {
			if page, tier, ok := location.Page(); ok {
				v.block(place{messages.PoolID(pool), tier, page}, b, chains)
			}
		}
	}
}

// block checks the page of a block: its tokens, or in a state pool the state after
// the last of them.
func (v *Verifier) block(p place, b *protocol.Content, chains []Chain) {
	if layout := &v.Layouts[p.pool]; layout.HoldsStates() {
		tokens := b.Depth*layout.pool.TokensPerBlock + len(chains)
		v.state(p, State{tokens, chains[len(chains)-1]}, "tree")
		return
	}
	v.page(p, chains, "tree", b.Depth)
}

// state checks a page that holds a state.
func (v *Verifier) state(p place, s State, owner string) {
	v.check(p, "state of "+owner, func(l *Layout, page []byte) error { return l.VerifyState(page, s) })
}

// check checks one page, whose contents what names.
func (v *Verifier) check(p place, what string, verify func(*Layout, []byte) error) {
	v.pages[p] = true
	layout := &v.Layouts[p.pool]
	bytes := v.Read(p.pool, p.tier, p.page)
	if bytes == nil {
		v.report("pool %s, %s page %d (%s): no such page", layout.pool.Name, p.tier, p.page, what)
	} else if err := verify(layout, bytes); err != nil {
		v.report("pool %s, %s page %d (%s): %v", layout.pool.Name, p.tier, p.page, what, err)
	}
}

// sequence checks the pages of a running sequence.
func (v *Verifier) sequence(s *Held) {
	for pool, tables := range s.Tables {
		for beam, table := range tables {
			if beam >= len(s.Beams) || s.Computed > len(s.Beams[beam]) {
				v.report("sequence %s: beam %d has a table, but not %d tokens", s.Name, beam, s.Computed)
				continue
			}
			v.table(messages.PoolID(pool), table, s.Beams[beam][:s.Computed], s.Name)
		}
	}
}

// table checks the pages of one beam in one pool.
func (v *Verifier) table(
	pool messages.PoolID, table []messages.PageID, chains []Chain, owner string,
) {
	if layout := &v.Layouts[pool]; layout.HoldsStates() {
		if len(table) != 1 || table[0] == messages.NoPage {
			v.report("sequence %s: pool %s has no working page", owner, layout.pool.Name)
			return
		}
		v.state(place{pool, messages.Primary, table[0]}, StateAfter(chains, len(chains)), owner)
		return
	}
	tpb := v.Layouts[pool].pool.TokensPerBlock
	for block := 0; block*tpb < len(chains); block++ {
		if block >= len(table) {
			v.report("sequence %s: pool %s has %d pages for %d computed tokens", owner,
				v.Layouts[pool].pool.Name, len(table), len(chains))
			return
		}
		if table[block] == messages.NoPage {
			continue
		}
		v.page(place{pool, messages.Primary, table[block]},
			chains[block*tpb:min(len(chains), (block+1)*tpb)], owner, block)
	}
}

// page checks the leading rows of one page and stops at the first wrong one.
func (v *Verifier) page(p place, chains []Chain, owner string, block int) {
	v.check(p, fmt.Sprintf("block %d of %s", block, owner),
		func(l *Layout, page []byte) error { return l.Verify(page, 0, chains...) })
}

func (v *Verifier) report(format string, args ...any) {
	if len(v.problems) == maxProblems {
		v.more++
		return
	}
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// Inspector reads pages of a device that has nothing under way: device memory
// can only be seen by kernels, so it launches one for each page. Launcher is
// best the device itself, not a hazard checker around it: that everything has
// drained is not known to the checker.
type Inspector struct {
	Launcher gpu.Launcher
	Stream   gpu.Stream
	Drain    func() // runs the kernel

	page []byte
}

// Bytes gives the bytes of a slot, until the next call; nil if there is no such
// page.
func (i *Inspector) Bytes(slot gpu.Slot) []byte {
	seen := false
	_, err := i.Launcher.Launch(i.Stream, gpu.Kernel{
		Label: "inspect", Reads: []gpu.Access{{Slot: slot}},
		Run: func(bytes gpu.PageBytes) {
			i.page = append(i.page[:0], bytes(slot)...)
			seen = true
		},
	})
	if err != nil {
		return nil
	}
	i.Drain()
	if !seen {
		return nil
	}
	return i.page
}
