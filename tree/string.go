package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// String draws the tree: a line for each block, indented where the prefix
// branches, namespaces and siblings in order.
//
//	salt "" lora none
//	  0 [1 2 3 4] d0 h1 p35
//	  1 [5 6 7 8] d2 -- p80 until 1s session "a"
//	    2 [9] d3 d4 p35
//	    2 [9 9 9 9] -- -- ghost
//
// The numbers are depths; then tokens, where each pool of the namespace's kind keeps
// the block (a device page, a host page, nowhere), priority, timer and session. A
// covered token is written hash/position:token, with the first byte of the hash.
// Nothing in the picture depends on the history of the tree but pages, priorities and
// sessions: no ids are drawn.
func (t *Tree) String() string {
	var w strings.Builder
	roots := slices.DeleteFunc(slices.Clone(t.arena.roots),
		func(r root) bool { return r.children == protocol.NoBlock })
	slices.SortFunc(roots, func(a, b root) int {
		return cmp.Or(cmp.Compare(a.namespace.Salt, b.namespace.Salt),
			cmp.Compare(loraName(a.namespace), loraName(b.namespace)),
			cmp.Compare(a.namespace.Encoder, b.namespace.Encoder),
			cmp.Compare(fmt.Sprint(a.cross), fmt.Sprint(b.cross)))
	})
	for _, r := range roots {
		fmt.Fprintf(&w, "salt %q lora %s", r.namespace.Salt, loraName(r.namespace))
		if n := len(r.namespace.Encoder); n > 0 {
			fmt.Fprintf(&w, " encoder input of %d bytes", n)
		}
		if r.cross {
			w.WriteString(" cross")
		}
		w.WriteByte('\n')
		t.drawBelow(&w, r.children, 1)
	}
	if w.Len() == 0 {
		return "empty\n"
	}
	return w.String()
}

// loraName returns the adapter of a namespace as String writes it.
func loraName(ns messages.Namespace) string {
	if !ns.HasLoRA {
		return "none"
	}
	return fmt.Sprintf("%q", ns.LoRA)
}

// drawBelow writes the lines of a treap of siblings and of all that follows them.
func (t *Tree) drawBelow(w *strings.Builder, top protocol.BlockID, indent int) {
	siblings := t.arena.appendSiblings(nil, top, nil)
	slices.Reverse(siblings)
	for _, b := range siblings {
		run := t.arena.appendRun(nil, b)
		for _, c := range run {
			t.draw(w, c, indent)
		}
		t.drawBelow(w, t.arena.blocks[run[len(run)-1]].children, indent+1)
	}
}

// draw writes the line of block b.
func (t *Tree) draw(w *strings.Builder, b protocol.BlockID, indent int) {
	fmt.Fprintf(w, "%s%d [", strings.Repeat("  ", indent), t.arena.blocks[b].depth)
	for k, tok := range t.arena.hostTokens(b) {
		if k > 0 {
			w.WriteByte(' ')
		}
		if tok < 0 {
			e := &t.arena.symbols.values[entry(tok)]
			fmt.Fprintf(w, "%02x/%d:", e.hash[0], e.position)
			tok = e.token
		}
		fmt.Fprint(w, int32(tok))
	}
	w.WriteByte(']')
	first, end := t.arena.poolsOf(t.arena.cross(b))
	if first == 0 {
		end = t.arena.selfPools
	}
	for p := first; p < end; p++ {
		switch page, tier, ok := t.arena.locations[p][b].Page(); {
		case !ok:
			w.WriteString(" --")
		case tier == messages.Primary:
			fmt.Fprintf(w, " d%d", page)
		default:
			fmt.Fprintf(w, " h%d", page)
		}
	}
	if !t.arena.held(b) {
		w.WriteString(" ghost\n")
		return
	}
	fmt.Fprintf(w, " p%d", t.arena.blocks[b].priority)
	if end, ok := t.arena.timers.of(b); ok {
		fmt.Fprintf(w, " until %s", end)
	}
	if s := t.arena.blocks[b].session; s != none {
		fmt.Fprintf(w, " session %q", t.arena.sessions.values[s])
	}
	w.WriteByte('\n')
}
