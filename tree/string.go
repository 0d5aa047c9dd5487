package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
// sessions: neither ids nor nodes are drawn.
func (t *Tree) String() string {
	var w strings.Builder
	roots := slices.DeleteFunc(slices.Clone(t.base.roots), func(r root) bool { return r.node == none })
	slices.SortFunc(roots, func(a, b root) int {
		return cmp.Or(cmp.Compare(a.namespace.Salt, b.namespace.Salt),
			cmp.Compare(loraName(a.namespace), loraName(b.namespace)),
			cmp.Compare(a.namespace.Encoder, b.namespace.Encoder),
			cmp.Compare(class(t.base.arena.nodes[a.node].cross), class(t.base.arena.nodes[b.node].cross)))
	})
	for _, r := range roots {
		fmt.Fprintf(&w, "salt %q lora %s", r.namespace.Salt, loraName(r.namespace))
		if n := len(r.namespace.Encoder); n > 0 {
			fmt.Fprintf(&w, " encoder input of %d bytes", n)
		}
		if t.base.arena.nodes[r.node].cross {
			w.WriteString(" cross")
		}
		w.WriteByte('\n')
		type line struct {
			node   int32
			indent int
		}
		stack := []line{{r.node, 0}}
		var children []int32
		for n := len(stack); n > 0; n = len(stack) {
			l := stack[n-1]
			stack = stack[:n-1]
			for i := range t.base.arena.nodes[l.node].n {
				t.draw(&w, l.node, i, l.indent)
			}
			children = t.base.childrenOf(children[:0], l.node)
			for _, y := range children {
				stack = append(stack, line{y, l.indent + 1})
			}
		}
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

// draw writes the line of block i of node x.
func (t *Tree) draw(w *strings.Builder, x, i int32, indent int) {
	b := t.base.arena.ids(x)[i]
	fmt.Fprintf(w, "%s%d [", strings.Repeat("  ", indent), t.base.arena.nodes[x].depth+i)
	tokens := t.base.arena.tokensAt(x, i)
	for k, tok := range tokens[:len(tokens)-int(t.base.padding(x, i))] {
		if k > 0 {
			w.WriteByte(' ')
		}
		if tok < 0 {
			e := &t.base.symbols.entries[entry(tok)]
			fmt.Fprintf(w, "%02x/%d:", e.hash[0], e.position)
		}
		fmt.Fprint(w, int32(t.base.symbols.original(tok)))
	}
	w.WriteByte(']')
	first, end := t.base.arena.poolsOf(t.base.arena.nodes[x].cross)
	if first == 0 {
		end = t.base.arena.selfPools
	}
	for p := first; p < end; p++ {
		switch page, tier, ok := t.base.arena.locations(x, p)[i].Page(); {
		case !ok:
			w.WriteString(" --")
		case tier == messages.Primary:
			fmt.Fprintf(w, " d%d", page)
		default:
			fmt.Fprintf(w, " h%d", page)
		}
	}
	if !t.base.arena.held(x, i) {
		w.WriteString(" ghost\n")
		return
	}
	priority := t.base.blocks.priority[b]
	if t.base.timers.ended(b) {
		priority = messages.DefaultPriority
	}
	fmt.Fprintf(w, " p%d", priority)
	if end, ok := t.base.timers.of(b); ok {
		fmt.Fprintf(w, " until %s", end)
	}
	if s := t.base.blocks.sessionOf(b); s != none {
		fmt.Fprintf(w, " session %q", t.base.sessions.names[s])
	}
	w.WriteByte('\n')
}
