package events

import (
	"cmp"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// Names gives the hashes by which events name the whole blocks of a prefix, in
// order; a part of a block at its end has no name here. If the engine's weights
// have a name (kvactor.Config.Weights), Namespace.Weights must be set to it, else
// no block matches; with scales that are not 1 it is what the Namespace of the
// engine's stored events says. A prefix with an encoder input is refused, because
// the engine makes the key of that input itself. The cost is some 0.12 µs for 16
// tokens.
func Names(p messages.Prefix, tokensPerBlock int) ([]kvevents.Hash, error) {
	switch {
	case tokensPerBlock < 1:
		return nil, refusals.New(messages.ErrBadRequest, "blocks of %d tokens", tokensPerBlock)
	case len(p.Encoder)+len(p.EncoderItems) > 0 || p.Namespace.Encoder != "":
		return nil, refusals.New(messages.ErrNotSupported, "names of blocks behind an encoder input")
	}
	if err := cmp.Or(refusals.Namespace(&p.Namespace),
		refusals.Items(p.Multimodal, len(p.Tokens))); err != nil {
		return nil, err
	}
	covers := protocol.CoversOf(p.Multimodal, len(p.Tokens))
	var h hasher
	names := make([]kvevents.Hash, len(p.Tokens)/tokensPerBlock)
	before := h.seed(&p.Namespace)
	for i := range names {
		from, to := i*tokensPerBlock, (i+1)*tokensPerBlock
		var of []messages.Cover
		if covers != nil {
			of = covers[from:to]
		}
		before = h.block(before, p.Tokens[from:to], of)
		names[i] = before
	}
	return names, nil
}

// Match is how many of the leading blocks of a prompt, whose names are given,
// every pool can serve, in whichever tier they are: full attention needs all of
// them, a limited window those that the token behind them attends to. The pools
// are all pools of the engine, without the cross pool of an encoder–decoder model.
//
// Since the last token of a prompt of n is always computed, a router matches
//
//	names[:(n-1)/tokensPerBlock]
//
// and an admission then reuses so many blocks at least: a part of the next one may
// come on top, and where a match ends inside a block a limited window begins
// later. The cost is a look into a map for each block and pool. A stale mirror
// matches by what it knew last.
func (m *Mirror) Match(pools []windows.Pool, names []kvevents.Hash) int {
	// fits[n] is whether every pool asked so far can serve n blocks. One pool may
	// rule out a length that a smaller window of another allows, so lengths are kept
	// and not one number.
	fits := make([]bool, len(names)+1)
	for n := range fits {
		fits[n] = true
	}
	reach := len(names)
	for i := range pools {
		reach = m.narrow(&pools[i], names[:reach], fits)
	}
	for reach > 0 && !fits[reach] {
		reach--
	}
	return reach
}

// narrow clears fits[n] where a pool cannot serve the first n blocks, and gives
// the largest n beyond which it can serve none.
func (m *Mirror) narrow(p *windows.Pool, names []kvevents.Hash, fits []bool) (reach int) {
	whole := 0 // blocks [whole, n) are held
	for n := 1; n <= len(names); n++ {
		if _, held := m.keys[Key{Pool: p.ID, Hash: names[n-1]}]; !held {
			// Every longer prefix needs this block too. fits beyond the reach is not
			// read any more.
			if p.Full() || n <= p.SinkBlocks() {
				return n - 1
			}
			whole = n
		}
		fits[n] = fits[n] && whole <= p.FirstNeeded(n*p.TokensPerBlock)
	}
	return len(names)
}
