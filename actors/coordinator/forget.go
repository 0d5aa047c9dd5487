package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// forget serves Invalidate and Reset: blocks leave the tree.
//
//	Invalidate: start ───────────────▶ forgetting ─▶ following ─▶ answer
//	Reset:      start ─▶ listing ──────▶
//	                     pools say which blocks running sequences hold: these stay
//
// An invalidation names blocks; running sequences that it names keep their pages but
// store nothing from then on. A reset forgets all that no running sequence holds.
//
// The tree goes first, because it alone knows the pages of a block and what lies behind it.
// Sequences stop storing before pools and host memory follow, in the same stage in which the
// tree has answered.
type forget struct {
	*shared
	invalidate *messages.Invalidate // nil: a reset
	reset      *messages.Reset
	record     protocol.Forget
	stage      forgetStage
}

// forgetStage is what the request waits for.
type forgetStage uint8

// The stages. From forgetFollowing on the tree has forgotten, and the request only
// has to be answered.
const (
	forgetIdle       forgetStage = iota // nothing has been sent
	forgetListing                       // a reset: pools list the blocks that sequences hold
	forgetForgetting                    // the tree forgets
	forgetFollowing                     // pools and host memory follow
)

// String names the stage.
func (s forgetStage) String() string {
	return [...]string{"idle", "listing", "forgetting", "following"}[s]
}

// open begins a request: one of the two.
func (f *forget) open(i *messages.Invalidate, r *messages.Reset) {
	f.invalidate, f.reset, f.stage = i, r, forgetIdle
}

// start begins with what the request names.
func (f *forget) start() {
	if f.invalidate != nil {
		f.startInvalidate()
		return
	}
	f.reset.Err = nil
	// The pools are asked and not the sequences: a sequence knows its pages, and only the pool
	// knows which block each of them caches.
	f.out.pools.reset()
	for p := range f.config.Pools {
		f.out.pools.add(p, protocol.PoolOp{Kind: protocol.HeldBlocks})
	}
	f.stage = forgetListing
	f.out.pools.send()
}

// startInvalidate sends the tree a copy of what the host has selected, with the namespace under
// which its blocks are stored.
func (f *forget) startInvalidate() {
	r := f.invalidate
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
	f.send(protocol.Forget{Selector: selector, Cross: selector.Prefix != nil && len(r.Selector.Prefix.Tokens) == 0})
}

// validateSelector checks that exactly one thing is selected, and that its values are
// valid.
func (c *Config) validateSelector(s *messages.Selector) error {
	n := 0
	if s.Session != "" {
		n++
	}
	if s.Salt != "" {
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
		return refusals.New(messages.ErrBadRequest, "exactly one of session, salt and tokens selects, not %d", n)
	}
	return nil
}

// send sends the tree what to forget.
func (f *forget) send(m protocol.Forget) {
	// The tree needs the time: what it forgets may have timers, and others may have ended.
	m.Now, m.Effects = f.kernel.now, f.record.Effects[:0]
	// The record keeps the array of its effects from request to request.
	f.record = m
	f.record.Epoch = f.kernel.epoch
	f.stage = forgetForgetting
	f.kernel.toTree(&f.record)
}

// resume does the stage that follows.
func (f *forget) resume() {
	switch f.stage {
	case forgetListing:
		f.out.pools.received()
		keep := make([][]protocol.BlockID, len(f.config.Pools))
		for p := range keep {
			// What a sequence holds stays stored: its host goes on, and others may share it.
			keep[p] = f.out.pools.op(p, 0).Blocks
		}
		f.send(protocol.Forget{All: true, Keep: keep})
	case forgetForgetting:
		f.forgotten()
	case forgetFollowing:
		f.out.followed()
		f.kernel.reply()
	case forgetIdle:
	}
}

// forgotten stops the sequences that the selector names from storing; then pools
// and offloader follow. The sequences go on to run with their pages; what they compute from
// here on is found by no other.
func (f *forget) forgotten() {
	if f.invalidate != nil {
		// From here on the tree has forgotten. The sequences follow before anything else is sent:
		// one of them must not store a block once more that was just forgotten.
		f.invalidate.Blocks = f.record.Blocks
		f.sequences.Each(func(s *sequence.Sequence) {
			f.silence(s)
		})
	}
	f.sequences.Returned(f.record.Returned)
	// Pages that sequences hold stay theirs: to be detached takes away what they cache, not
	// who holds them.
	f.out.reset()
	f.out.route(f.record.Effects)
	f.stage = forgetFollowing
	f.out.followUp()
}

// silence stops a sequence from storing what the selector names: a session or a salt
// names its tokens and its encoder's input, a prefix one of them.
func (f *forget) silence(s *sequence.Sequence) {
	selector := &f.record.Selector
	switch {
	case f.record.Cross:
		// The namespace has the key of the input, so it names the whole input.
		if s.Namespace == selector.Prefix.Namespace {
			s.Input.StopStoring()
		}
	case names(selector, s):
		s.StopStoring()
		if selector.Prefix == nil {
			s.Input.StopStoring()
		}
	}
}

// names tells whether a selector names a sequence: tokens do if any of its beams
// has them, for any may be the one that is stored.
func names(selector *messages.Selector, s *sequence.Sequence) bool {
	switch {
	// A session is that of the admission. Forks have it, too.
	case selector.Session != "":
		return s.Session == selector.Session
	case selector.Salt != "":
		return s.Namespace.Salt == selector.Salt
	}
	p := selector.Prefix
	if s.Namespace != p.Namespace {
		return false
	}
	// Tokens that are not computed yet count as well: they would be stored later.
	for b := range s.Width() {
		if tokens := s.Tokens(b); len(tokens) >= len(p.Tokens) && slices.Equal(tokens[:len(p.Tokens)], p.Tokens) {
			return true
		}
	}
	return false
}

// renew takes a new record for a new epoch.
func (f *forget) renew() { f.record = protocol.Forget{} }

// undo has nothing to take back: to forget twice is to forget once.
func (f *forget) undo(bool) verdict {
	// The tree has forgotten, and the sequences know: the rebuilt pools are made from both, so
	// only the answer is missing.
	if f.stage == forgetFollowing {
		return answerNow
	}
	return serveAgain
}

// check verifies that what the tree is asked to forget is named: all, with the blocks
// to be kept of each pool, or what a selector names.
func (f *forget) check() error {
	if f.stage == forgetForgetting && f.record.All != (f.invalidate == nil) {
		return fmt.Errorf("%v: the tree is asked to forget all blocks: %v", f, f.record.All)
	}
	if f.stage == forgetForgetting && f.record.All && len(f.record.Keep) != len(f.config.Pools) {
		return fmt.Errorf("%v: kept blocks of %d pools, there are %d", f, len(f.record.Keep), len(f.config.Pools))
	}
	return nil
}

// String names request and stage.
func (f *forget) String() string {
	if f.invalidate != nil {
		return fmt.Sprintf("invalidate: %v", f.stage)
	}
	return fmt.Sprintf("reset: %v", f.stage)
}
