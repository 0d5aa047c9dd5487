package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// invalidate forgets what a selector names; running sequences that it names
// keep their pages but store nothing from then on.
func (c *Coordinator) invalidate(r *messages.Invalidate) {
	r.Err, r.Blocks = nil, 0
	if err := c.validateSelector(&r.Selector); err != nil {
		r.Err = err
		c.reply()
		return
	}
	c.forget = protocol.Forget{Header: protocol.Header{Epoch: c.epoch}, Now: c.now, Selector: r.Selector, Effects: c.forget.Effects[:0]}
	if p := r.Selector.Prefix; p != nil {
		own := *p
		own.Tokens = slices.Clone(p.Tokens) // symbols are written into them
		c.forget.Selector.Prefix = &own
	}
	c.sendForget((*Coordinator).invalidated)
}

func (c *Coordinator) validateSelector(s *messages.Selector) error {
	n := 0
	if s.Session != "" {
		n++
	}
	if s.Salt != "" {
		n++
	}
	if s.Prefix != nil {
		n++
		if err := c.validateStored(s.Prefix); err != nil {
			return err
		}
	}
	if n != 1 {
		return messages.Refuse(messages.BadRequest, "exactly one of session, salt and tokens selects, not %d", n)
	}
	return nil
}

func (c *Coordinator) sendForget(next func(*Coordinator)) {
	c.pending++
	c.next = next
	c.port.Tree(&c.forget)
}

// invalidated mutes the sequences that the selector names.
func (c *Coordinator) invalidated() {
	r := c.round.request.(*messages.Invalidate)
	r.Blocks = c.forget.Blocks
	selector := &c.forget.Selector
	c.sequences.each(func(s *sequence) {
		if names(selector, s) {
			s.mute = true
		}
	})
	c.forgotten()
}

// names tells whether a selector names a sequence: tokens do if any of its beams
// has them, for any may be the one that is stored.
func names(selector *messages.Selector, s *sequence) bool {
	switch {
	case selector.Session != "":
		return s.session == selector.Session
	case selector.Salt != "":
		return s.namespace.Salt == selector.Salt
	default:
		p := selector.Prefix
		return s.namespace == p.Namespace && slices.ContainsFunc(s.tokens, func(beam []messages.Token) bool {
			return len(beam) >= len(p.Tokens) && slices.Equal(beam[:len(p.Tokens)], p.Tokens)
		})
	}
}

// forgotten lets pools and offloader follow.
func (c *Coordinator) forgotten() {
	c.settled = true
	c.resetWork()
	c.resetMove()
	c.route(c.forget.Effects)
	c.after = (*Coordinator).reply
	c.sendEffects()
}

// reset forgets all that no running sequence holds; the pools say what is held.
func (c *Coordinator) reset(r *messages.Reset) {
	r.Err = nil
	c.resetWork()
	for p := range c.Pools {
		c.add(p, protocol.PoolOp{Kind: protocol.HeldBlocks})
	}
	c.sendPools((*Coordinator).resetHeld)
}

func (c *Coordinator) resetHeld() {
	c.pooled()
	keep := make([][]protocol.BlockID, len(c.Pools))
	for p := range keep {
		keep[p] = c.work[p].Ops[0].Blocks
	}
	c.forget = protocol.Forget{Header: protocol.Header{Epoch: c.epoch}, Now: c.now, All: true, Keep: keep, Effects: c.forget.Effects[:0]}
	c.sendForget((*Coordinator).forgotten)
}
