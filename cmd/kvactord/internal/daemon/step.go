package daemon

import (
	"context"
	"errors"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// maxEntries bounds the entries of a step.
const maxEntries = 1 << 16

// checkStep refuses a step with too many entries.
func (s *session) checkStep(in *wire.Step) *wire.Error {
	n := len(in.GetWritten()) + len(in.GetReleases()) + len(in.GetMatches()) + len(in.GetReserves()) +
		len(in.GetExtends()) +
		len(in.GetLookups()) + len(in.GetPrefetches()) + len(in.GetPins()) + len(in.GetUnpins()) +
		len(in.GetInvalidates())
	if n > maxEntries {
		return errorf(codeLimit, "a step of %d entries, at most %d", n, maxEntries)
	}
	return nil
}

// step serves the entries of a step, in the order of the fields.
func (s *session) step(ctx context.Context, in *wire.Step) *wire.Stepped {
	out := &wire.Stepped{}
	out.Written = s.written(ctx, in.GetWritten())
	out.Releases = s.releases(ctx, in.GetReleases())
	out.Matches = s.matches(ctx, in.GetMatches())
	out.Reserves = s.reserves(ctx, in.GetReserves())
	out.Extends = s.extends(ctx, in.GetExtends())
	for _, p := range in.GetLookups() {
		out.Lookups = append(out.Lookups, s.lookup(ctx, p))
	}
	for _, p := range in.GetPrefetches() {
		out.Prefetches = append(out.Prefetches, s.prefetch(ctx, p))
	}
	for _, p := range in.GetPins() {
		out.Pins = append(out.Pins, s.pin(ctx, p))
	}
	for _, n := range in.GetUnpins() {
		out.Unpins = append(out.Unpins, s.unpin(ctx, n))
	}
	for _, x := range in.GetInvalidates() {
		out.Invalidates = append(out.Invalidates, s.invalidate(ctx, x))
	}
	return out
}

// batch collects the steps of a call of the engine, and which entry each belongs to.
type batch struct {
	steps   []kvactor.Step
	entries []int
	taken   map[*handle]bool // a sequence is in one step of a call at most
}

// add adds a step; a second one for the same handle is refused.
func (b *batch) add(entry int, h *handle, step kvactor.Step) *wire.Error {
	if b.taken[h] {
		return badf("the step names the handle twice")
	}
	if b.taken == nil {
		b.taken = map[*handle]bool{}
	}
	b.taken[h] = true
	step.Sequence = h.sequence
	b.steps, b.entries = append(b.steps, step), append(b.entries, entry)
	return nil
}

// written commits what clients have written.
func (s *session) written(ctx context.Context, list []*wire.Written) []*wire.Done {
	out := make([]*wire.Done, len(list))
	var b batch
	for i, w := range list {
		out[i] = &wire.Done{}
		h, wrong := s.writeOf(w.GetHandle())
		if wrong == nil {
			wrong = s.checkWritten(h, int64(w.GetTokens()))
		}
		if wrong == nil {
			wrong = b.add(i, h, kvactor.Step{Computed: int(w.GetTokens())})
		}
		out[i].Error = wrong
	}
	if len(b.steps) == 0 {
		return out
	}
	_ = s.in.note(s.in.engine.Commit(ctx, b.steps))
	for k, i := range b.entries {
		err := b.steps[k].Err
		if err == nil { // the copy of a state is over before the client writes the next one
			err = s.in.wait(ctx, b.steps[k].Sequence)
		}
		out[i].Error = refusal(err)
	}
	return out
}

// checkWritten refuses a length that is not that of blocks of the write, or less than before.
func (s *session) checkWritten(h *handle, tokens int64) *wire.Error {
	block := int64(s.in.geometry.cache.TokensPerBlock)
	switch n := int64(h.sequence.Len()); {
	case tokens%block != 0 || tokens > n:
		return badf("%d tokens are not whole blocks of %d of a write of %d", tokens, block, n)
	case h.tail && tokens != n:
		return badf("%d tokens of a write of %d with tail, which is written as a whole", tokens, n)
	case tokens < int64(h.sequence.Computed()):
		return badf("%d tokens, %d are written already", tokens, h.sequence.Computed())
	}
	return nil
}

// releases ends claims and writes. The deadline of the request does not stop it: a handle that
// is forgotten must have given its pages back.
func (s *session) releases(ctx context.Context, list []uint64) []*wire.Done {
	out := make([]*wire.Done, len(list))
	var over []*handle
	for i, n := range list {
		out[i] = &wire.Done{}
		h, wrong := s.sequenceOf(n)
		if wrong != nil {
			out[i].Error = wrong
			continue
		}
		delete(s.handles, n)
		over = append(over, h)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = s.in.release(ending, over) // what is lost is released as well
	return out
}

// extends adds blocks to writes.
func (s *session) extends(ctx context.Context, list []*wire.Extend) []*wire.Extended {
	out := make([]*wire.Extended, len(list))
	var b batch
	for i, x := range list {
		out[i] = &wire.Extended{}
		h, wrong := s.writeOf(x.GetHandle())
		var tokens []kvactor.Token
		if wrong == nil {
			tokens, wrong = readTokens(x.GetTokens())
		}
		if wrong == nil {
			wrong = s.whole(len(tokens))
		}
		if wrong == nil && h.unfinished() {
			wrong = badf("%d of %d tokens are written: extend when all are", h.sequence.Computed(),
				h.sequence.Len())
		}
		if wrong == nil {
			wrong = b.add(i, h, kvactor.Step{Tokens: tokens})
		}
		out[i].Error = wrong
	}
	if len(b.steps) == 0 {
		return out
	}
	_ = s.in.note(s.in.engine.Append(ctx, b.steps))
	for k, i := range b.entries {
		st := &b.steps[k]
		if st.Err == nil {
			st.Err = s.in.wait(ctx, st.Sequence)
		}
		if out[i].Error = refusal(st.Err); st.Err != nil {
			continue
		}
		from := (st.Sequence.Len() - len(st.Tokens)) / s.in.geometry.cache.TokensPerBlock
		for p, table := range st.Sequence.Tables() {
			if s.in.pools[p].Kind == kvactor.KindAttention {
				out[i].Pages = append(out[i].Pages, packPages(table[0][from:]))
			} else {
				out[i].Pages = append(out[i].Pages, packPages(table[0]))
			}
		}
	}
	return out
}

// whole refuses a number of tokens that is not one of whole blocks.
func (s *session) whole(tokens int) *wire.Error {
	if block := s.in.geometry.cache.TokensPerBlock; tokens%block != 0 {
		return badf("%d tokens are not whole blocks of %d", tokens, block)
	}
	return nil
}

func (s *session) lookup(ctx context.Context, p *wire.Prompt) *wire.Found {
	prefix, wrong := readPrompt(p)
	if wrong != nil {
		return &wire.Found{Error: wrong}
	}
	look := s.in.engine.Lookup
	if s.in.stores {
		look = actors.StoreOf(s.in.engine.Actors()).Lookup
	}
	found, err := look(ctx, prefix)
	return &wire.Found{Error: refusal(s.in.note(err)), Tokens: uint32(found.MatchedTokens),
		StoredTokens: uint32(found.StoredTokens)}
}

// prefetch brings what the store has, and what is in host memory only.
func (s *session) prefetch(ctx context.Context, p *wire.Prompt) *wire.Prefetched {
	prefix, wrong := readPrompt(p)
	if wrong != nil {
		return &wire.Prefetched{Error: wrong}
	}
	if s.in.stores {
		if _, err := actors.StoreOf(s.in.engine.Actors()).Fetch(ctx, prefix); err != nil {
			return &wire.Prefetched{Error: refusal(s.in.note(err))}
		}
	}
	_, err := s.in.engine.Prefetch(ctx, prefix)
	found := kvactor.Found{}
	if err == nil {
		found, err = s.in.engine.Lookup(ctx, prefix)
	}
	return &wire.Prefetched{Error: refusal(s.in.note(err)), Tokens: uint32(found.MatchedTokens)}
}

func (s *session) pin(ctx context.Context, p *wire.Prompt) *wire.Pinned {
	prefix, wrong := readPrompt(p)
	if wrong == nil {
		wrong = s.full(0)
	}
	if wrong != nil {
		return &wire.Pinned{Error: wrong}
	}
	pinned, err := s.in.engine.Pin(ctx, prefix)
	if err != nil {
		return &wire.Pinned{Error: refusal(s.in.note(err))}
	}
	return &wire.Pinned{Pin: s.keep(&handle{pin: pinned.Pin}), Tokens: uint32(pinned.Tokens)}
}

func (s *session) unpin(ctx context.Context, n uint64) *wire.Done {
	h, wrong := s.pinOf(n)
	if wrong != nil {
		return &wire.Done{Error: wrong}
	}
	err := s.in.note(s.in.engine.Unpin(ctx, h.pin))
	if err == nil || errors.Is(err, kvactor.ErrUnknownPin) {
		delete(s.handles, n)
	}
	return &wire.Done{Error: refusal(err)}
}

func (s *session) invalidate(ctx context.Context, x *wire.Selector) *wire.Invalidated {
	selector, wrong := readSelector(x)
	if wrong != nil {
		return &wire.Invalidated{Error: wrong}
	}
	n, err := s.in.engine.Invalidate(ctx, selector)
	return &wire.Invalidated{Error: refusal(s.in.note(err)), Blocks: uint32(n)}
}
