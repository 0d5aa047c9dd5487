package sim

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// naive answers what a prompt matches from a list of what is stored, by the
// words of the rule: the longest beginning of which every pool has what the token
// behind it attends to. It searches everything each time.
type naive struct {
	cache  windows.Config
	pools  []windows.Pool
	blocks []known
}

// known is a stored block with all tokens from the start to its end.
type known struct {
	protocol.Content
	key []symbol
}

// symbol is a token and what covers it.
type symbol struct {
	token messages.Token
	cover messages.Cover
}

// newNaive reads contents, of which each block comes after the one before it.
func newNaive(cache windows.Config, pools []windows.Pool, contents []protocol.Content) *naive {
	n := &naive{cache: cache, pools: pools}
	for _, c := range contents {
		var key []symbol
		if c.Parent >= 0 {
			key = n.blocks[c.Parent].key
		}
		key = key[:len(key):len(key)]
		for i, token := range c.Tokens {
			s := symbol{token: token}
			if c.Covers != nil {
				s.cover = c.Covers[i]
			}
			key = append(key, s)
		}
		n.blocks = append(n.blocks, known{c, key})
	}
	return n
}

// symbolsOf are the tokens of a prompt with what covers them.
func symbolsOf(p messages.Prefix) []symbol {
	key := make([]symbol, len(p.Tokens))
	for i, token := range p.Tokens {
		key[i].token = token
	}
	for _, item := range p.Multimodal {
		for i := range item.Length {
			key[item.Start+i].cover = messages.Cover{Covered: true, Hash: item.Hash, Position: i}
		}
	}
	return key
}

// match is the longest match that ends at a block boundary, and the longest one.
func (n *naive) match(p prompt) (whole, longest int) {
	key := symbolsOf(p.Prefix)
	ns, _ := p.input()
	for tokens := len(key) - 1; tokens > 0; tokens-- { // one has to be computed
		rest := tokens % n.cache.TokensPerBlock
		if rest > 0 && (longest > 0 || !n.cache.EnablePartialReuse || !n.source(ns, key[:tokens])) ||
			!n.covered(ns, key[:tokens]) {
			continue
		}
		longest = max(longest, tokens)
		if rest == 0 {
			return tokens, longest
		}
	}
	return 0, longest
}

// matchInput is how much of an encoder input can be reused: all of it, if the cross pool has
// every block, or nothing. The last block may be short.
func (n *naive) matchInput(p prompt, cross messages.PoolID) int {
	ns, _ := p.input()
	key := symbolsOf(messages.Prefix{Tokens: p.Encoder}) // the items are in the namespace
	matched := 0
	for matched < len(key) {
		end := min(matched+n.cache.TokensPerBlock, len(key))
		if !n.has(ns, key[:end], cross) {
			return 0
		}
		matched = end
	}
	return matched
}

// covered reports whether every pool has the whole blocks that the token behind
// these attends to.
func (n *naive) covered(ns messages.Namespace, key []symbol) bool {
	tpb := n.cache.TokensPerBlock
	for b := range len(key) / tpb {
		for p, pool := range n.pools {
			seen := pool.Window == 0 || (b+1)*tpb > len(key)-pool.Window+1 || b*tpb < pool.Sink
			if seen && !n.has(ns, key[:(b+1)*tpb], messages.PoolID(p)) {
				return false
			}
		}
	}
	return true
}

// has reports whether a pool has the last block of a key.
func (n *naive) has(ns messages.Namespace, key []symbol, p messages.PoolID) bool {
	for i := range n.blocks {
		b := &n.blocks[i]
		if b.Namespace == ns && len(b.key) == len(key) && shared(b.key, key) == len(key) &&
			b.Pages[p] != protocol.Nowhere {
			return true
		}
	}
	return false
}

// source reports whether a block that every pool has begins with the tokens behind
// the last block boundary of a key.
func (n *naive) source(ns messages.Namespace, key []symbol) bool {
	for i := range n.blocks {
		b := &n.blocks[i]
		if b.Namespace != ns || b.Depth != len(key)/n.cache.TokensPerBlock ||
			shared(b.key, key) < len(key) {
			continue
		}
		all := true
		for _, at := range b.Pages[:len(n.pools)] {
			all = all && at != protocol.Nowhere
		}
		if all {
			return true
		}
	}
	return false
}

// shared is the number of leading symbols that a and b have in common.
func shared(a, b []symbol) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// compareMatches holds what the engine finds of the last prompts against the
// naive answer. Whether a match in part can be used depends on more than what is
// stored, so the longest match of whole blocks is right, too. A panic that was still
// to come may take contents away between two requests: what is stored is then read
// again, and so is the match. Nothing else may: a lookup changes nothing.
func (w *world) compareMatches() error {
	// The naive match knows no checkpoints; the oracle of the differential runs does.
	if !w.cache.EnableBlockReuse || w.recurrent {
		return nil
	}
	before, err := w.restarts()
	if err != nil {
		return err
	}
	contents, err := w.stored()
	if err != nil {
		return err
	}
	n := newNaive(w.cache, w.pools[:w.decoder()], contents)
	for _, p := range w.asked() {
		w.counts.add("matches compared", 1)
		wrong, err := w.compareMatch(n, p)
		if err != nil {
			return err
		}
		if wrong == nil {
			continue
		}
		again, err := w.stored()
		if err != nil {
			return err
		}
		if reflect.DeepEqual(again, contents) {
			return wrong
		}
		if after, err := w.restarts(); err != nil || after == before {
			return fmt.Errorf("what is stored has changed by itself: %w", errors.Join(wrong, err))
		}
		w.counts.add("contents lost meanwhile", 1)
		return w.compareMatches()
	}
	return nil
}

// stored is what the tree holds.
func (w *world) stored() ([]protocol.Content, error) {
	contents := &protocol.ReadContents{}
	err := w.serve(contents)
	return contents.Blocks, err
}

// restarts is how often actors have been restarted.
func (w *world) restarts() (int64, error) {
	stats := &inspect.ReadStats{}
	err := w.serve(stats)
	return stats.Stats.Restarts, err
}

// asked are the last prompts, and their encoder inputs.
func (w *world) asked() (list []prompt) {
	for _, p := range w.past[max(0, len(w.past)-4):] {
		list = append(list, p)
		if w.encodes {
			p.Tokens, p.Multimodal = nil, nil
			list = append(list, p)
		}
	}
	return list
}

// compareMatch tells what is wrong with the match of one prompt.
func (w *world) compareMatch(n *naive, p prompt) (wrong, err error) {
	lookup := &messages.Lookup{Prefix: p.Prefix}
	if err := w.serve(lookup); err != nil {
		return nil, err
	}
	if lookup.Err != nil {
		return nil, lookup.Err
	}
	whole, longest := n.match(p)
	if len(p.Tokens) == 0 {
		whole = n.matchInput(p, messages.PoolID(w.decoder()))
		longest = whole
	}
	if found := lookup.Found.MatchedTokens; found != longest && found != whole {
		return fmt.Errorf("%v matches %d tokens, of what is stored %d should", p, found, longest), nil
	}
	return nil, nil
}
