package tree

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// atom is a token in full: what the tree hides behind a symbol is written out.
type atom struct {
	token    messages.Token
	covered  bool
	hash     byte
	position int
}

// space is where prefixes are looked for: a namespace, of self or of cross pools.
type space struct {
	messages.Namespace
	cross bool
}

// oblock is a block that some pool holds, with all tokens from the start.
type oblock struct {
	ns       space
	full     []atom
	places   []protocol.Location
	priority messages.Priority
	timed    bool
	end      time.Duration
	session  string
	stamp    int
}

// oracle is the tree as one would write it on a whiteboard: a list of blocks,
// each with its whole prefix, searched in full for everything.
type oracle struct {
	tpb    int
	pools  []PoolShape
	blocks []*oblock
	stamp  int
}

func keyOf(ns space, full []atom) string {
	var w strings.Builder
	fmt.Fprintf(&w, "%q %q %v %q %v", ns.Salt, ns.LoRA, ns.HasLoRA, ns.Encoder, ns.cross)
	for _, a := range full {
		if a.covered {
			fmt.Fprintf(&w, " %d/%d:%d", a.hash, a.position, a.token)
		} else {
			fmt.Fprintf(&w, " %d", a.token)
		}
	}
	return w.String()
}

func (b *oblock) key() string { return keyOf(b.ns, b.full) }

// start is the first token of the block itself.
func (o *oracle) start(b *oblock) int { return (len(b.full) - 1) / o.tpb * o.tpb }

// everywhere tells whether all pools of the block's kind hold it.
func (o *oracle) everywhere(b *oblock) bool {
	for p := range o.pools {
		if o.concerns(b.ns, p) && b.places[p] == protocol.Nowhere {
			return false
		}
	}
	return true
}

// concerns tells whether pool p is one of those that hold the tokens of the blocks of a
// space.
func (o *oracle) concerns(ns space, p int) bool {
	return o.pools[p].Cross == ns.cross && !o.pools[p].State
}

// find gives the held block with exactly these tokens.
func (o *oracle) find(ns space, full []atom) *oblock {
	for _, b := range o.blocks {
		if b.ns == ns && slices.Equal(b.full, full) {
			return b
		}
	}
	return nil
}

// place is where pool p keeps the block with these tokens.
func (o *oracle) place(ns space, full []atom, p int) protocol.Location {
	if b := o.find(ns, full); b != nil {
		return b.places[p]
	}
	return protocol.Nowhere
}

// attends tells whether position l attends, in pool p, to a token of block i.
func (o *oracle) attends(p, l, i int) bool {
	s := o.pools[p]
	for j := i * o.tpb; j < min(l, (i+1)*o.tpb); j++ {
		switch {
		case s.Chunk > 0:
			if j/s.Chunk == l/s.Chunk {
				return true
			}
		case s.Window == 0 || j >= l-s.Window+1 || j < s.Sink:
			return true
		}
	}
	return false
}

// shared counts the leading tokens of b that equal the prompt's.
func shared(b *oblock, ns space, prompt []atom) int {
	if b.ns != ns {
		return 0
	}
	n := 0
	for n < len(b.full) && n < len(prompt) && b.full[n] == prompt[n] {
		n++
	}
	return n
}

type omatch struct {
	length  int
	source  *oblock
	reach   int
	lacking bool
	pages   [][]protocol.Location

	attention, attentionWhole int // without states
	attentionSource           *oblock
	checkpoint                *oblock
}

func (o *oracle) match(ns space, prompt []atom, partial bool) omatch {
	var m omatch
	for l := len(prompt); l >= 0; l-- {
		if l%o.tpb != 0 && !partial {
			continue
		}
		if ok, source := o.feasible(ns, prompt, l); ok {
			m.length, m.source = l, source
			break
		}
	}
	if o.recurrent() && !ns.cross {
		o.matchStates(&m, ns, prompt, partial)
	}
	for p := range o.pools {
		pages := []protocol.Location{}
		for i := range m.length / o.tpb {
			at := protocol.Nowhere
			if o.concerns(ns, p) && o.attends(p, m.length, i) {
				at = o.place(ns, prompt[:(i+1)*o.tpb], p)
			}
			pages = append(pages, at)
		}
		m.pages = append(m.pages, pages)
	}
	m.reach, m.lacking = o.reach(ns, prompt, partial)
	return m
}

// leads tells whether these tokens lead to a block.
func (o *oracle) leads(ns space, prompt []atom) bool {
	return len(prompt) == 0 || slices.ContainsFunc(o.blocks,
		func(b *oblock) bool { return shared(b, ns, prompt) == len(prompt) })
}

// feasible tells whether l tokens can be reused, and the source of the rest.
func (o *oracle) feasible(ns space, prompt []atom, l int) (bool, *oblock) {
	k := l / o.tpb
	if !o.leads(ns, prompt[:k*o.tpb]) {
		return false, nil
	}
	for p := range o.pools {
		for i := range k {
			if o.concerns(ns, p) && o.attends(p, l, i) && o.place(ns, prompt[:(i+1)*o.tpb],
				p) == protocol.Nowhere {
				return false, nil
			}
		}
	}
	if l%o.tpb == 0 {
		return true, nil
	}
	var best *oblock
	for _, b := range o.blocks {
		if o.everywhere(b) && o.start(b) == k*o.tpb && shared(b, ns, prompt) >= l &&
			(best == nil || b.stamp > best.stamp) {
			best = b
		}
	}
	return best != nil, best
}

func (o *oracle) reach(ns space, prompt []atom, partial bool) (int, bool) {
	reach := 0
	var into *oblock
	for _, b := range o.blocks {
		n := shared(b, ns, prompt)
		if n <= o.start(b) || !partial && (n < len(b.full) || n%o.tpb != 0) {
			continue
		}
		if n > reach || n == reach && b.stamp > into.stamp {
			reach, into = n, b
		}
	}
	for p, s := range o.pools {
		if s.Window != 0 || s.Chunk != 0 || reach == 0 || !o.concerns(ns, p) {
			continue
		}
		for i := range reach / o.tpb {
			if o.place(ns, prompt[:(i+1)*o.tpb], p) == protocol.Nowhere {
				return reach, true
			}
		}
		if reach%o.tpb != 0 && into.places[p] == protocol.Nowhere {
			return reach, true
		}
	}
	return reach, false
}

// sweep drops the blocks that no pool holds any more.
func (o *oracle) sweep() (dropped int) {
	before := len(o.blocks)
	o.blocks = slices.DeleteFunc(o.blocks, func(b *oblock) bool {
		return !slices.ContainsFunc(b.places,
			func(l protocol.Location) bool { return l != protocol.Nowhere })
	})
	return before - len(o.blocks)
}

func (o *oracle) expire(now time.Duration) {
	for _, b := range o.blocks {
		if b.timed && b.end <= now {
			b.timed, b.priority = false, messages.DefaultPriority
		}
	}
}

// given is what a retention gives to a block whose first token is at pos.
func given(r *messages.Retention, prompt, pos int) (messages.Priority, time.Duration, bool) {
	if r == nil {
		return 0, 0, false
	}
	if pos >= prompt {
		if r.Decode == nil {
			return 0, 0, false
		}
		return r.Decode.Priority, r.Decode.Duration, true
	}
	for _, g := range r.Ranges {
		if pos >= g.Start && (pos < g.End || g.End == messages.EndOfPrompt) {
			return g.Priority, g.Duration, true
		}
	}
	return 0, 0, false
}

func (b *oblock) retain(p messages.Priority, d, now time.Duration) {
	b.priority, b.timed, b.end = p, d > 0, now+d
}

func (b *oblock) sharedBy(session string) {
	if b.session != session {
		b.session = ""
	}
}

// claim is the claim of the whole blocks of prompt and of source.
func (o *oracle) claim(
	ns space, prompt []atom, k int, source *oblock, c *protocol.ClaimItem, now time.Duration,
) {
	o.stamp++
	for i := range k {
		b := o.find(ns, prompt[:(i+1)*o.tpb])
		if b == nil {
			continue
		}
		b.stamp = o.stamp
		b.sharedBy(c.Session)
		if p, d, ok := given(c.Retention, c.Prompt, i*o.tpb); ok {
			b.retain(p, d, now)
		}
	}
	if source != nil {
		source.stamp = o.stamp
	}
}

// store stores what a sequence offers.
func (o *oracle) store(s *protocol.StoreItem, full []atom, now time.Duration) {
	o.stamp++
	ns := space{s.Namespace, s.Cross}
	for pos := s.From; pos < s.To; pos += o.tpb {
		i := pos / o.tpb
		offered := false
		for p := range o.pools {
			offered = offered || o.concerns(ns, p) && s.Tables[p][i] != messages.NoPage
		}
		tokens := full[:min(pos+o.tpb, s.To)]
		if !offered && (len(tokens) < s.To || !o.offersState(s, full)) {
			continue
		}
		prio, d, covered := given(s.Retention, s.Prompt, pos)
		b := o.find(ns, tokens)
		if b == nil {
			b = &oblock{ns: ns, full: slices.Clone(tokens), session: s.Session, stamp: o.stamp}
			for range o.pools {
				b.places = append(b.places, protocol.Nowhere)
			}
			if !covered {
				prio = messages.DefaultPriority
			}
			b.retain(prio, d, now)
			o.blocks = append(o.blocks, b)
		} else {
			b.sharedBy(s.Session)
			if covered && i >= s.RetentionFrom {
				b.retain(prio, d, now)
			}
		}
		for p := range o.pools {
			page := s.Tables[p][i]
			if page == messages.NoPage || !o.concerns(ns, p) {
				continue
			}
			if b.places[p] > protocol.Nowhere {
				continue // the page stays with the sequence
			}
			if b.places[p] == protocol.Nowhere {
				b.stamp = o.stamp
			}
			b.places[p] = protocol.OnDevice(page)
		}
	}
}
