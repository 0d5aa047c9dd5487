package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// forget serves Invalidate, Reset, SetWeights and WriteScales: blocks leave the tree.
//
//	Invalidate: start ───────────────▶ forgetting ─▶ following ─▶ answer
//	SetWeights: start ────────────────▶
//	Reset:      start ─▶ listing ──────▶
//	                     pools say which blocks running sequences hold: these stay
//
// An invalidation names blocks; running sequences that it names keep their pages but
// store nothing from then on. A reset forgets all that no running sequence holds. With Running
// it forgets all, and so does SetWeights: both name all sequences.
//
// The tree goes first, because it alone knows the pages of a block and what lies behind it.
// Sequences stop storing before pools and host memory follow, in the same stage in which the
// tree has answered.
type forget struct {
	*shared
	stages[forget]
	record protocol.Forget
	done   func() // what else the request changes, once the tree has forgotten
}

// start begins with what the request names.
func (f *forget) start(request any) {
	f.record = protocol.Forget{All: true, Effects: f.record.Effects[:0]}
	forgets := &f.stats.Forgets
	switch r := request.(type) {
	case *messages.Invalidate:
		f.startInvalidate(r)
	case *messages.Reset:
		r.Err = nil
		if r.Running {
			f.done = func() {
				f.sequences.Each(silence)
				forgets.RunningResets++
			}
			f.send()
			return
		}
		f.done = func() { forgets.Resets++ }
		f.list()
	case *messages.SetWeights:
		r.Err = nil
		if r.Epoch == f.config.Weights {
			f.kernel.reply()
			return
		}
		f.done = func() {
			f.config.Weights = r.Epoch
			f.config.identify()
			f.sequences.Each(silence)
			forgets.Weights++
		}
		f.send()
	case *messages.WriteScales:
		f.startScales(r)
	}
}

// startScales forgets all that was divided by the scales of before. What runs would read its own
// pages by the new ones, so nothing may run.
func (f *forget) startScales(r *messages.WriteScales) {
	r.Err = nil
	if refusal := f.config.validateScales(r.Scales); refusal != nil {
		r.Err = refusal
	} else if f.config.scaled(r.Scales) {
		// The engine has these scales already.
	} else if n := f.sequences.Running(); n > 0 {
		r.Err = refusals.New(messages.ErrNotSupported,
			"%d sequences run with the scales of before: release them first", n)
	} else {
		f.done = func() {
			f.config.setScales(r.Scales)
			f.stats.Forgets.Scales++
		}
		f.send()
		return
	}
	f.kernel.reply()
}

// list asks the pools which blocks sequences hold. A sequence knows its pages, and only the pool
// knows which block each of them caches.
func (f *forget) list() {
	f.out.pools.reset()
	for p := range f.config.Pools {
		f.out.pools.add(p, protocol.PoolOp{Kind: protocol.HeldBlocks})
	}
	f.wait(f, "forget: listing", (*forget).listed)
	f.out.pools.send()
}

// listed sends the tree what to forget: all but what sequences hold, whose hosts go on.
func (f *forget) listed() {
	f.out.pools.received()
	for p := range f.config.Pools {
		f.record.Keep = append(f.record.Keep, f.out.pools.op(p, 0).Blocks)
	}
	f.send()
}

// startInvalidate sends the tree a copy of what the host has selected, with the namespace under
// which its blocks are stored.
func (f *forget) startInvalidate(r *messages.Invalidate) {
	r.Err, r.Blocks = nil, 0
	// Refused before anything is sent: one stage and no message.
	if err := f.config.validateSelector(&r.Selector); err != nil {
		r.Err = err
		f.kernel.reply()
		return
	}
	// The record of the host is not changed, so what the tree writes into goes to a copy.
	selector := r.Selector
	if p := selector.Prefix; p != nil {
		prefix := *p
		prefix.Namespace = f.config.keyed(p.Namespace, p.Encoder, p.EncoderItems)
		prefix.Tokens = slices.Clone(p.Tokens) // the tree writes symbols into them
		if len(p.Tokens) == 0 {
			// No other input is in the namespace: all its blocks begin with this token.
			prefix.Tokens = f.config.padded(p.Encoder)[:1]
		}
		selector.Prefix = &prefix
	}
	f.record.All, f.record.Selector = false, selector
	f.record.Cross = selector.Prefix != nil && len(r.Selector.Prefix.Tokens) == 0
	f.done = func() {
		r.Blocks = f.record.Blocks
		f.sequences.Each(f.silenceNamed)
		f.stats.Forgets.Invalidations++
		f.stats.Forgets.InvalidatedBlocks += int64(r.Blocks)
	}
	f.send()
}

// validateSelector checks that exactly one thing is selected, and that its values are
// valid.
func (c *Config) validateSelector(s *messages.Selector) error {
	n := 0
	if s.Session != "" {
		n++
	}
	if s.Salt != "" || s.HasLoRA {
		n++
	}
	if s.Prefix != nil {
		n++
		if err := c.ValidatePrefix(s.Prefix); err != nil {
			return err
		}
	}
	// Two selectors at once could mean both or either; the host says which by two requests.
	if n != 1 {
		return refusals.New(messages.ErrBadRequest,
			"exactly one of session, salt, adapter and tokens selects, not %d", n)
	}
	if s.LoRA != "" && !s.HasLoRA {
		return refusals.New(messages.ErrBadRequest, "adapter %q without HasLoRA", s.LoRA)
	}
	return nil
}

// send sends the tree what to forget.
func (f *forget) send() {
	// The tree needs the time: what it forgets may have timers, and others may have ended.
	m := &f.record
	m.Now, m.Epoch = f.kernel.now, f.kernel.epoch
	f.wait(f, "forget: forgetting", (*forget).forgotten)
	f.kernel.toTree(&f.record)
}

// forgotten stops the sequences that the selector names from storing; then pools
// and offloader follow. The sequences go on to run with their pages; what they compute from
// here on is found by no other.
func (f *forget) forgotten() {
	// From here on the tree has forgotten. The sequences follow before anything else is sent:
	// one of them must not store a block once more that was just forgotten.
	f.done()
	// What an adapter computed is asked for again at once. Sessions, salts and prefixes that hosts
	// invalidate, as many as they like, are not.
	if f.record.All || f.record.Selector.HasLoRA {
		f.thrash.forget()
	}
	f.waiting.due = f.waiting.len() > 0 // an admission of what is stored may need no page now
	// Pages that sequences hold stay theirs: to be detached takes away what they cache, not
	// who holds them.
	f.out.reset()
	f.out.saves.lose(f.record.Unsaved)
	f.out.route(f.record.Effects)
	f.wait(f, "forget: following", (*forget).end)
	f.out.followUp()
}

func (f *forget) end() {
	f.out.followed()
	f.kernel.reply()
}

// silenceNamed stops a sequence from storing what the selector names: a session or a salt
// names its tokens and its encoder's input, a prefix one of them.
func (f *forget) silenceNamed(s *sequence.Sequence) {
	selector := &f.record.Selector
	switch {
	case f.record.Cross:
		// The namespace has the key of the input, so it names the whole input.
		if s.Namespace == selector.Prefix.Namespace {
			s.Input.NoStore = true
		}
	case selector.Prefix == nil && names(selector, s):
		silence(s)
	case names(selector, s):
		s.NoStore = true
	}
}

// silence stops a sequence from storing anything.
func silence(s *sequence.Sequence) {
	s.NoStore = true
	s.Input.NoStore = true
}

// names tells whether a selector names a sequence: tokens do if any of its beams
// has them, for any may be the one that is stored.
func names(selector *messages.Selector, s *sequence.Sequence) bool {
	switch {
	// A session is that of the admission. Forks have it, too.
	case selector.Session != "":
		return s.Session == selector.Session
	case selector.Prefix == nil:
		return selector.Names(&s.Namespace)
	}
	p := selector.Prefix
	if s.Namespace != p.Namespace {
		return false
	}
	// Tokens that are not computed yet count as well: they would be stored later.
	for b := range s.Width() {
		if tokens := s.Tokens(b); len(tokens) >= len(p.Tokens) &&
			slices.Equal(tokens[:len(p.Tokens)], p.Tokens) {
			return true
		}
	}
	return false
}
