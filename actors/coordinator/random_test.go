package coordinator_test

import (
	"slices"
	"strings"
	gotesting "testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// Random sequences of a few sequences in small pools. There is no oracle here: what
// is held against the engine is its own bytes, references and invariants, that
// a refusal changes nothing, and that a lookup predicts the admission.

// randomHost is one random history.
type randomHost struct {
	*world
	rt     *rapid.T
	faults bool
	pins   []messages.PinID
}

// setups are worlds with little room in different places.
var setups = []setup{
	{pages: []windows.PageCounts{{Primary: 9}}},
	{pages: []windows.PageCounts{{Primary: 7, Secondary: 5}}},
	{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 6, Secondary: 3},
		{Primary: 9, Secondary: 4}}},
	{windows: []int{2, full, 12}, sink: 3, pages: []windows.PageCounts{{Primary: 8, Secondary: 3}}},
	{windows: []int{6}, pages: []windows.PageCounts{{Primary: 6, Secondary: 2}}},
	{pages: []windows.PageCounts{{Primary: 8, Secondary: 3}},
		change: func(c *windows.Config) { c.CopyOnPartialReuse = false }},
	{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8, Secondary: 3}},
		change: func(c *windows.Config) { c.EnablePartialReuse = false }},
	{pages: []windows.PageCounts{{Primary: 8}},
		change: func(c *windows.Config) { c.EnableBlockReuse = false }},
	{windows: []int{full, 8, 8}, pages: []windows.PageCounts{{Primary: 8, Secondary: 3}},
		change: func(c *windows.Config) { c.SecondaryOffloadMinPriority = 50 }},
	{pages: []windows.PageCounts{{Primary: 7, Secondary: 5}},
		change: func(c *windows.Config) { c.EvictionPolicy = windows.Forecast }},
	{states: true, pages: []windows.PageCounts{{Primary: 9}, {Primary: 5}}},
	{states: true, windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 9, Secondary: 3},
		{Primary: 12, Secondary: 3}, {Primary: 4, Secondary: 3}},
		change: func(c *windows.Config) { c.StateCheckpointInterval = 8 }},
	{states: true, pages: []windows.PageCounts{{Primary: 9, Secondary: 4}, {Primary: 4, Secondary: 2}},
		change: func(c *windows.Config) { c.CopyOnPartialReuse = false }},
}

func TestRandomRequests(t *gotesting.T) {
	rapid.Check(t, func(rt *rapid.T) { randomRequests(rt, false) })
}

func TestRandomRequestsWithFaults(t *gotesting.T) {
	rapid.Check(t, func(rt *rapid.T) { randomRequests(rt, true) })
}

func FuzzRandomRequests(f *gotesting.F) {
	f.Fuzz(rapid.MakeFuzz(func(rt *rapid.T) { randomRequests(rt, true) }))
}

func randomRequests(rt *rapid.T, faults bool) {
	i := rapid.IntRange(0, len(setups)-1).Draw(rt, "world")
	c := &randomHost{world: newWorld(rt, setups[i]), rt: rt, faults: faults}
	rt.Repeat(map[string]func(*rapid.T){
		"admit":      func(*rapid.T) { c.admitOne() },
		"batch":      func(*rapid.T) { c.admitSeveral() },
		"commit":     func(*rapid.T) { c.commitOne() },
		"append":     func(*rapid.T) { c.appendSome() },
		"rewind":     func(*rapid.T) { c.rewindOne() },
		"fork":       func(*rapid.T) { c.forkOne() },
		"release":    func(*rapid.T) { c.releaseSome() },
		"pin":        func(*rapid.T) { c.pinOne() },
		"unpin":      func(*rapid.T) { c.unpinOne() },
		"prefetch":   func(*rapid.T) { _, _ = c.prefetch(c.prompt()) },
		"invalidate": func(*rapid.T) { c.invalidate() },
		"reset":      func(*rapid.T) { c.do(&messages.Reset{}) },
		"advance":    func(*rapid.T) { c.advance(time.Duration(c.draw(1, 30, "ms")) * time.Millisecond) },
		"rebalance":  func(*rapid.T) { c.rebalance() },
		"fault":      func(*rapid.T) { c.fault() },
	})
	c.end()
}

func (c *randomHost) draw(from, to int, label string) int {
	return rapid.IntRange(from, to).Draw(c.rt, label)
}

// one picks a running sequence that the predicate allows; nil if there is none.
func (c *randomHost) one(allowed func(*hostSequence) bool) *hostSequence {
	var ids []messages.SequenceID
	for id, l := range c.running {
		if allowed(l) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return c.running[ids[c.draw(0, len(ids)-1, "sequence")]]
}

// prompt is one of few, with prefixes in common.
func (c *randomHost) prompt() []messages.Token {
	tokens := run(0, c.draw(1, 26, "length"))
	switch c.draw(0, 3, "kind") {
	case 1:
		at := c.draw(0, len(tokens)-1, "fork at")
		copy(tokens[at:], run(100+c.draw(0, 1, "way"), len(tokens)-at))
	case 2:
		copy(tokens, run(200, len(tokens)))
	}
	return tokens
}

// request is a random admission that is right in itself.
func (c *randomHost) request() messages.AdmitRequest {
	r := messages.AdmitRequest{Tokens: c.prompt(), Session: []string{"", "", "s",
		"t"}[c.draw(0, 3, "session")]}
	if c.draw(0, 7, "salt") == 0 {
		r.Namespace.Salt = "x"
	}
	switch c.draw(0, 9, "special") {
	case 0, 1:
		r.ChunkTokens = tpb * c.draw(1, 3, "chunk")
	case 2:
		// A model with recurrent layers has one beam.
		if !slices.ContainsFunc(c.layouts, func(l host.Layout) bool { return l.HoldsStates() }) {
			r.BeamWidth = c.draw(2, 3, "beams")
		}
	case 3:
		r.Retention = &messages.Retention{Decode: &messages.DecodeRetention{Priority: 60},
			Ranges: []messages.RetentionRange{
				{Start: 0, End: 6, Priority: messages.Priority(c.draw(0, 100, "priority")),
					Duration: time.Duration(c.draw(1, 20, "ms")) * time.Millisecond},
			}}
	case 4:
		start := c.draw(0, len(r.Tokens)-1, "item")
		r.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{byte(c.draw(1, 2, "hash"))},
			Start: start, Length: c.draw(1, len(r.Tokens)-start, "covers")}}
	}
	return r
}

func (c *randomHost) admitOne() {
	r := c.request()
	found := c.lookup(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens,
		Multimodal: r.Multimodal})
	require.Equal(c.t, found.MatchedTokens, found.PrimaryTokens+found.SecondaryTokens)
	failing := c.memory.failing != [3]int{}
	if failing {
		// A transfer that fails is a change in itself: contents are lost.
		_, sequences := c.admitBatch(r)
		c.prefillSome(sequences)
		return
	}
	a, l, err := c.tryAdmit(r)
	if err != nil {
		require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		return
	}
	// A lookup knows no chunks. If the last page is the checkpoint itself, and the prompt as a whole
	// does not fit even without reuse, it says what is stored; in chunks the prompt fits, and goes
	// without.
	if r.ChunkTokens == 0 || a.ReusedTokens > found.MatchedTokens {
		require.Equal(c.t, found.MatchedTokens, a.ReusedTokens, "a lookup predicts the admission")
	}
	c.prefillSome([]*hostSequence{l})
}

func (c *randomHost) admitSeveral() {
	var requests []messages.AdmitRequest
	for range c.draw(2, 3, "batch") {
		requests = append(requests, c.request())
	}
	results, sequences := c.admitBatch(requests...)
	for _, a := range results {
		if a.Err != nil && !c.failed(a.Err) {
			require.ErrorIs(c.t, a.Err, messages.ErrOutOfPages)
		}
	}
	c.prefillSome(sequences)
}

// prefillSome computes the prompts of most; the rest stay as they are.
func (c *randomHost) prefillSome(sequences []*hostSequence) {
	for _, l := range sequences {
		if l != nil && c.draw(0, 3, "prefill") > 0 {
			c.prefill(l)
		}
	}
}

func (c *randomHost) commitOne() {
	if l := c.one(func(l *hostSequence) bool { return l.computed < l.prompt }); l != nil {
		c.commitTo(l, l.reach())
	}
}

func (c *randomHost) appendSome() {
	tokens := run(100+c.draw(0, 1, "way"), c.draw(1, 3, "n"))
	ready := func(l *hostSequence) bool { return l.computed >= l.prompt && l.length()+3 < full }
	if l := c.one(ready); l != nil && len(l.beams) > 1 {
		steps := make([]messages.BeamStep, len(l.beams))
		for i := range steps {
			steps[i] = messages.BeamStep{Parent: c.draw(0, len(steps)-1, "parent"),
				Token: messages.Token(300 + i)}
		}
		if err := c.tryBeams(l, steps...).Err; err != nil && !c.failed(err) {
			require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		}
		return
	}
	var some []*hostSequence
	for range c.draw(1, 3, "sequences") {
		if l := c.one(func(l *hostSequence) bool {
			return ready(l) && len(l.beams) == 1 && !slices.Contains(some, l)
		}); l != nil {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return
	}
	for _, r := range c.tryAppend(tokens, some...) {
		if r.Err != nil && !c.failed(r.Err) {
			require.ErrorIs(c.t, r.Err, messages.ErrOutOfPages)
		}
	}
}

// failed tells a refusal for a transfer that failed.
func (c *randomHost) failed(err error) bool {
	return c.faults && strings.Contains(err.Error(), "failed")
}

func (c *randomHost) rewindOne() {
	if l := c.one(func(l *hostSequence) bool {
		return len(l.beams) == 1 && l.length() > l.prompt
	}); l != nil {
		if err := c.rewind(l, c.draw(1, l.length()-l.prompt, "n")); err != nil {
			require.ErrorIs(c.t, err, messages.ErrNotSupported)
		}
	}
}

func (c *randomHost) forkOne() {
	if l := c.one(func(l *hostSequence) bool {
		return len(l.beams) == 1 && l.computed >= l.prompt
	}); l != nil && len(c.running) < 8 {
		if _, err := c.tryFork(l, c.draw(1, 2, "forks")); err != nil && !c.failed(err) {
			require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		}
	}
}

func (c *randomHost) releaseSome() {
	var some []*hostSequence
	for range c.draw(1, 3, "sequences") {
		if l := c.one(func(l *hostSequence) bool { return !slices.Contains(some, l) }); l != nil {
			some = append(some, l)
		}
	}
	if len(some) > 0 {
		c.release(some...)
	}
}

func (c *randomHost) pinOne() {
	pinned, err := c.tryPin(c.prompt())
	if err != nil {
		require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		return
	}
	c.pins = append(c.pins, pinned.Pin)
}

func (c *randomHost) unpinOne() {
	if len(c.pins) > 0 {
		i := c.draw(0, len(c.pins)-1, "pin")
		c.unpin(c.pins[i])
		c.pins = slices.Delete(c.pins, i, i+1)
	}
}

func (c *randomHost) invalidate() {
	m := &messages.Invalidate{}
	switch c.draw(0, 2, "selector") {
	case 0:
		m.Selector.Session = "s"
	case 1:
		m.Selector.Salt = "x"
	default:
		m.Selector.Prefix = &messages.Prefix{Tokens: c.prompt()}
	}
	c.do(m)
	require.NoError(c.t, m.Err)
}

func (c *randomHost) rebalance() {
	m := &messages.Rebalance{}
	if n := len(c.Pools); n > 1 && c.draw(0, 1, "demand") == 0 {
		m.Fractions = map[string]float64{}
		share := float64(c.draw(20, 80, "share")) / 100
		for i, p := range c.Pools {
			m.Fractions[p.Name()] = (1 - share) / float64(n-1)
			if i == 0 {
				m.Fractions[p.Name()] = share
			}
		}
	}
	before := c.picture()
	c.Do(m)
	// What could be moved before a copy failed has moved.
	halfway := m.Err != nil && strings.Contains(m.Err.Error(), "could not be copied")
	if m.Err != nil && !halfway && !c.failed(m.Err) {
		// The shares of a small world may be too small for a page of a pool.
		if !strings.Contains(m.Err.Error(), "gets no page") {
			require.ErrorIs(c.t, m.Err, messages.ErrOutOfPages)
		}
		require.Equal(c.t, before, c.picture())
	}
	c.releaseAllLost()
	c.check()
}

func (c *randomHost) fault() {
	if c.faults {
		c.memory.failing[rapid.SampledFrom([]offloader.Lane{offloader.Offload, offloader.Onboard,
			offloader.Duplicate}).Draw(c.rt, "lane")]++
	}
}

// end releases everything: nothing may be left but what is cached.
func (c *randomHost) end() {
	for _, l := range c.running {
		c.release(l)
	}
	for _, pin := range c.pins {
		c.unpin(pin)
	}
	for _, p := range c.stats().Pools {
		require.Zero(c.t, p.Primary.Used, "%s\n%s", p.Name, c.picture())
		require.Zero(c.t, p.Secondary.Used)
	}
	c.do(&messages.Reset{})
	for _, p := range c.stats().Pools {
		require.Equal(c.t, p.Primary.Total, p.Primary.Free, p.Name)
		require.Equal(c.t, p.Secondary.Total, p.Secondary.Free, p.Name)
	}
	require.Equal(c.t, "empty\n", c.Cores.Tree.String())
}
