package host

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// State is the recurrent state of a sequence after some of its tokens. The zero
// State is that before the first token: all its bytes are zero.
type State struct {
	Tokens int
	Chain  Chain // after the last of them
}

// StateAfter is the state after the first n tokens of a beam.
func StateAfter(chains []Chain, n int) State {
	if n == 0 {
		return State{}
	}
	return State{n, chains[n-1]}
}

// StateUpdate is what a step does to the working page of one sequence in one state
// pool: it reads the state From and writes the state To in its place.
type StateUpdate struct {
	Pool     messages.PoolID
	Page     messages.PageID
	From, To State
}

// HoldsStates reports whether the pool's pages hold recurrent states.
func (l *Layout) HoldsStates() bool { return l.pool.Kind == windows.KindState }

// stateSeed starts the generator of one layer's state.
func (l *Layout) stateSeed(layer int, s State) uint64 {
	return mix(uint64(s.Chain)^rowKey, uint64(l.pool.Layers[layer])^stateKey^l.rank)
}

// stateOf is the part of a page that holds the state of one layer.
func (l *Layout) stateOf(page []byte, layer int) []byte {
	n := int(l.pool.StateBytes)
	return page[layer*n : (layer+1)*n]
}

// WriteState fills a state page with a state.
func (l *Layout) WriteState(page []byte, s State) {
	if s.Tokens == 0 {
		clear(page)
		return
	}
	for layer := range l.pool.Layers {
		fill(l.stateOf(page, layer), l.stateSeed(layer, s))
	}
}

// VerifyState compares a state page with what WriteState would put there and
// names the first layer that differs.
func (l *Layout) VerifyState(page []byte, s State) error {
	if len(page) != l.pageBytes() {
		return fmt.Errorf("page of %d bytes, pool %s has %d", len(page), l.pool.Name, l.pageBytes())
	}
	for layer := range l.pool.Layers {
		state := l.stateOf(page, layer)
		zero := !slices.ContainsFunc(state, func(b byte) bool { return b != 0 })
		if s.Tokens == 0 && !zero || s.Tokens > 0 && !filled(state, l.stateSeed(layer, s)) {
			return fmt.Errorf("layer %d, state after %d tokens: wrong bytes", l.pool.Layers[layer], s.Tokens)
		}
	}
	return nil
}

// stateAccesses declares what a kernel does to working pages: it reads each before
// it writes it.
func (w *Writer) stateAccesses(updates []StateUpdate) []gpu.Access {
	out := make([]gpu.Access, 0, len(updates))
	for _, u := range updates {
		out = append(out, gpu.Access{Slot: w.stateSlot(u)})
	}
	return out
}

func (w *Writer) stateSlot(u StateUpdate) gpu.Slot {
	return gpu.Slot{Pool: w.config.Pools[u.Pool], Tier: messages.Primary, Page: u.Page}
}

// updateStates is the part of a kernel that computes recurrent layers.
func (w *Writer) updateStates(rank int, bytes gpu.PageBytes, updates []StateUpdate) {
	for _, u := range updates {
		layout, page := &w.ranks[rank][u.Pool], bytes(w.stateSlot(u))
		if err := layout.VerifyState(page, u.From); err != nil {
			w.report(fmt.Sprintf("pool %s, page %d, read by a kernel%s: %v", layout.pool.Name, u.Page,
				w.on(rank), err))
		}
		layout.WriteState(page, u.To)
	}
}
