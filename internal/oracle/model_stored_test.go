package oracle

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// pin holds spots, in whichever tier they are.
type pin struct {
	id    messages.PinID
	spots []pinnedSpot
}

type pinnedSpot struct {
	pool  *pool
	block *block
	spot  *spot
}

// live reports whether the pin still holds: a forgotten block's pins end with it.
func (x pinnedSpot) live() bool { return x.block.at[x.pool.id] == x.spot }

// Pin protects the stored blocks of a prefix from eviction.
func (o *Oracle) Pin(_ context.Context, q messages.Prefix) (messages.Pinned, error) {
	if err := o.begin(); err != nil {
		return messages.Pinned{}, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return messages.Pinned{}, err
	}
	spots, tokens := o.planner.spots(o.named(q))
	for _, p := range o.pools {
		// Only the reserve of a chunked prefill can stand against it.
		need, available := 0, max(0, o.references.available(p, nil))
		for _, x := range spots {
			if x.pool == p && x.spot.device != nil && !o.references.taken(p, x.spot.device) {
				need++
			}
		}
		if need > available {
			return messages.Pinned{}, refusals.OutOfPages(p.Name, need, available)
		}
	}
	for _, x := range spots {
		x.spot.pins++
	}
	o.lastPin++
	o.pins = append(o.pins, &pin{o.lastPin, spots})
	return messages.Pinned{Pin: o.lastPin, Tokens: tokens}, nil
}

// Unpin ends a pin.
func (o *Oracle) Unpin(_ context.Context, id messages.PinID) error {
	if err := o.begin(); err != nil {
		return err
	}
	for i, x := range o.pins {
		if x.id != id {
			continue
		}
		for _, held := range x.spots {
			if held.live() {
				held.spot.pins--
				o.memory.spend(held.spot, use{request: o.clock.request})
			}
		}
		o.pins = slices.Delete(o.pins, i, i+1)
		return nil
	}
	return refusals.New(messages.ErrUnknownPin, "pin %d is not there", id)
}

// Prefetch brings what host memory holds of a prefix to the device.
func (o *Oracle) Prefetch(_ context.Context, q messages.Prefix) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return 0, err
	}
	spots, _ := o.planner.spots(o.named(q))
	for _, p := range o.pools {
		need, claimed := 0, map[*page]bool{}
		for _, x := range spots {
			if x.pool == p && x.spot.device == nil {
				need++
			} else if x.pool == p {
				claimed[x.spot.device] = true
			}
		}
		if available := max(0, o.references.available(p, claimed)); need > available {
			return 0, refusals.OutOfPages(p.Name, need, available)
		}
	}
	for _, x := range spots {
		if x.spot.device != nil {
			o.references.guarded[x.spot.device] = true
		} else {
			o.references.guarded[x.spot.host] = true
		}
	}
	pages := map[pinnedSpot]*page{}
	for _, x := range spots {
		if x.spot.device == nil {
			pages[x] = o.memory.take(x.pool, q.Namespace.Salt)
			o.references.guarded[pages[x]] = true
		}
	}
	for _, x := range spots {
		if pg := pages[x]; pg != nil {
			o.memory.onboard(x.pool, x.block, pg)
		}
		o.memory.spend(x.spot, use{request: o.clock.request})
	}
	return len(pages), nil
}

// Invalidate forgets what a selector names; running sequences that it names
// store nothing from then on.
func (o *Oracle) Invalidate(_ context.Context, sel messages.Selector) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	if err := validSelector(sel); err != nil {
		return 0, err
	}
	if sel.Prefix != nil {
		q := o.named(*sel.Prefix)
		sel.Prefix = &q
	}
	n := 0
	for _, b := range o.tree.byDepth() {
		if names(sel, b.namespace, b.key, b.session) {
			n++
			o.tree.forgetAll(b)
		}
	}
	for _, s := range o.references.sequences {
		for _, key := range s.keys {
			if names(sel, s.namespace, key, s.session) {
				s.noStore = true
			}
		}
	}
	return n, nil
}

// Reset forgets, in each pool, every block that no running sequence holds there.
func (o *Oracle) Reset(context.Context) error {
	if err := o.begin(); err != nil {
		return err
	}
	for _, b := range o.tree.byDepth() {
		for _, p := range o.pools {
			if s := b.at[p.id]; s != nil && len(o.references.holders(p, s.device)) == 0 {
				o.tree.forget(b, p)
			}
		}
	}
	if len(o.tree.blocks) == 0 {
		o.log.emit(kvevents.Event{Type: kvevents.EventCleared})
	}
	return nil
}

// ResetRunning forgets every block; running sequences store nothing from then on.
func (o *Oracle) ResetRunning(context.Context) error {
	if err := o.begin(); err != nil {
		return err
	}
	o.forgetEverything()
	return nil
}

// SetWeights begins an epoch of the weights.
func (o *Oracle) SetWeights(_ context.Context, epoch string) error {
	if err := o.begin(); err != nil {
		return err
	}
	if epoch != o.weights {
		o.forgetEverything()
		o.weights = epoch
	}
	return nil
}

func (o *Oracle) forgetEverything() {
	for _, b := range o.tree.byDepth() {
		o.tree.forgetAll(b)
	}
	for _, s := range o.references.sequences {
		s.noStore = true
	}
	o.log.emit(kvevents.Event{Type: kvevents.EventCleared})
}

// names reports whether the selector names a block or a sequence with this key.
func names(sel messages.Selector, ns messages.Namespace, key []symbol, session string) bool {
	switch {
	case sel.Prefix != nil:
		prefix := symbols(sel.Prefix.Tokens, sel.Prefix.Multimodal)
		return ns == sel.Prefix.Namespace && len(key) >= len(prefix) &&
			slices.Equal(key[:len(prefix)], prefix)
	case sel.HasLoRA:
		return ns.HasLoRA && ns.LoRA == sel.LoRA && (sel.Salt == "" || ns.Salt == sel.Salt)
	case sel.Salt != "":
		return ns.Salt == sel.Salt
	default:
		return session == sel.Session
	}
}
