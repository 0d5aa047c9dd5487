package encoderdecoder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Random requests of a few sequences with few encoder inputs. What is held against
// the engine after each step is every byte, all invariants, that a refusal has
// changed nothing, and the naive oracle of identity: which inputs have been
// computed and not been forgotten. With room for everything a match is what
// the oracle says; with less it is never longer.

// randomHosts are hosts that make random calls.
type randomHosts struct {
	*rig
	rt    *rapid.T
	roomy bool
	now   time.Duration
	known map[string]int // computed inputs, by salt and key
	pins  []messages.PinID

	lossy bool // sequences may be lost, so known is not exact and is not compared
}

// rooms are cross pools: large, small, and with host memory.
var rooms = []setup{
	{pages: []windows.PageCounts{{Primary: 2000}, {Primary: 2000}}},
	{pages: []windows.PageCounts{{Primary: 14}, {Primary: 7}}},
	{pages: []windows.PageCounts{{Primary: 10, Secondary: 4}, {Primary: 5, Secondary: 4}}},
	{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 9}, {Primary: 12}, {Primary: 6}}},
	{pages: []windows.PageCounts{{Primary: 12}, {Primary: 6}},
		change: func(c *windows.Config) { c.EnablePartialReuse = false }},
}

func TestRandomHosts(t *testing.T) { rapid.Check(t, checkRandomHosts) }

func FuzzRandomHosts(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRandomHosts)) }

func checkRandomHosts(rt *rapid.T) {
	i := rapid.IntRange(0, len(rooms)-1).Draw(rt, "room")
	c := &randomHosts{rt: rt, roomy: i == 0, known: map[string]int{}}
	s := rooms[i]
	s.now = &c.now
	c.rig = newRig(rt, s)
	defer c.end()
	defer c.unpinAll()
	actions := c.actions()
	actions[""] = func(*rapid.T) { c.verify() }
	rt.Repeat(actions)
}

func (c *randomHosts) unpinAll() {
	for _, pin := range c.pins {
		require.NoError(c.t, c.Unpin(context.Background(), pin))
	}
	c.pins = nil
}

func (c *randomHosts) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"admit":      func(*rapid.T) { c.admitOne() },
		"batch":      func(*rapid.T) { c.admitSeveral() },
		"compute":    func(*rapid.T) { c.computeOne() },
		"decode":     func(*rapid.T) { c.decodeOne() },
		"fork":       func(*rapid.T) { c.forkOne() },
		"release":    func(*rapid.T) { c.releaseOne() },
		"invalidate": func(*rapid.T) { c.invalidate() },
		"pin":        func(*rapid.T) { c.pin() },
		"prefetch": func(*rapid.T) {
			_, _ = c.Prefetch(context.Background(), messages.Prefix{Encoder: c.encoder()})
		},
		"advance": func(*rapid.T) { c.now += time.Duration(c.draw(1, 30, "ms")) * time.Millisecond },
	}
}

func (c *randomHosts) draw(from, to int, label string) int {
	return rapid.IntRange(from, to).Draw(c.rt, label)
}

// encoder is one of few inputs, with beginnings in common.
func (c *randomHosts) encoder() []messages.Token {
	tokens := run(100, c.draw(1, 13, "encoder tokens"))
	if c.draw(0, 2, "kind") == 0 {
		tokens[len(tokens)-1] = 7
	}
	return tokens
}

func (c *randomHosts) request() messages.AdmitRequest {
	request := ask(c.encoder(), run(0, c.draw(1, 14, "tokens")))
	if c.draw(0, 4, "salt") == 0 {
		request.Namespace.Salt = "x"
	}
	if c.draw(0, 3, "retention") == 0 {
		request.EncoderRetention = &messages.Retention{Ranges: []messages.RetentionRange{{
			End: messages.EndOfPrompt, Priority: messages.Priority(c.draw(0, 100, "priority")),
			Duration: 10 * time.Millisecond,
		}}}
	}
	return request
}

// nameOf is the identity of a request's input.
func nameOf(r messages.AdmitRequest) string {
	return fmt.Sprintf("%q %x", r.Namespace.Salt, coordinator.EncoderKey(r.Encoder, r.EncoderItems))
}

// checkReuse compares the reused tokens of an admission with the oracle.
func (c *randomHosts) checkReuse(l *hostSequence) {
	c.t.Helper()
	if c.lossy {
		return
	}
	got, want := l.admitted.Cross.ReusedTokens, c.known[nameOf(l.request)]
	if c.roomy {
		require.Equal(c.t, want, got, "reused encoder tokens")
	}
	require.LessOrEqual(c.t, got, want)
}

func (c *randomHosts) admitOne() {
	request, before := c.request(), c.picture()
	l, err := c.rig.admit(request)
	if err != nil {
		require.False(c.t, c.roomy && len(c.running) < 4)
		require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		require.Equal(c.t, before, c.picture(), "a refusal changed something: %v", err)
		return
	}
	c.checkReuse(l)
}

func (c *randomHosts) admitSeveral() {
	var requests []messages.AdmitRequest
	for range c.draw(2, 4, "requests") {
		requests = append(requests, c.request())
	}
	results, err := c.AdmitBatch(context.Background(), requests)
	require.NoError(c.t, err)
	for i := range results {
		if results[i].Err != nil {
			require.ErrorIs(c.t, results[i].Err, messages.ErrOutOfPages)
			continue
		}
		c.checkReuse(c.begin(requests[i], results[i]))
	}
}

// one picks a running sequence that the predicate allows; nil if there is none.
func (c *randomHosts) one(allowed func(*hostSequence) bool) *hostSequence {
	var list []*hostSequence
	for _, l := range c.running {
		if allowed(l) {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[c.draw(0, len(list)-1, "sequence")]
}

func (c *randomHosts) computeOne() {
	l := c.one(func(l *hostSequence) bool { return l.computed < len(l.request.Tokens) })
	if l == nil {
		return
	}
	n := len(l.request.Tokens)
	if part := (l.computed/tpb + 1) * tpb; part < n && c.draw(0, 1, "part") == 0 {
		n = part
	}
	c.compute(l, n)
	c.known[nameOf(l.request)] = len(l.request.Encoder)
}

// whole tells whether a prompt has been computed.
func whole(l *hostSequence) bool { return l.computed >= len(l.request.Tokens) }

func (c *randomHosts) decodeOne() {
	if l := c.one(whole); l != nil && len(l.chains) < full {
		if err := c.decode(l, messages.Token(c.draw(0, 3, "token"))); err != nil {
			require.ErrorIs(c.t, err, messages.ErrOutOfPages)
		}
	}
}

func (c *randomHosts) forkOne() {
	if l := c.one(whole); l != nil {
		c.fork(l, c.draw(1, 2, "forks"))
	}
}

func (c *randomHosts) releaseOne() {
	if l := c.one(func(*hostSequence) bool { return true }); l != nil {
		c.release(l)
	}
}

// invalidate forgets one input. Sequences that have it store it no more, so the
// oracle is left with what it knows of the others.
func (c *randomHosts) invalidate() {
	request := ask(c.encoder(), nil)
	for _, l := range c.running {
		if nameOf(l.request) == nameOf(request) {
			return
		}
	}
	_, err := c.Invalidate(context.Background(),
		messages.Selector{Prefix: &messages.Prefix{Encoder: request.Encoder}})
	require.NoError(c.t, err)
	delete(c.known, nameOf(request))
}

// pin holds an input, or ends a pin.
func (c *randomHosts) pin() {
	ctx := context.Background()
	if len(c.pins) > 1 {
		require.NoError(c.t, c.Unpin(ctx, c.pins[0]))
		c.pins = c.pins[1:]
		return
	}
	pinned, err := c.Pin(ctx, messages.Prefix{Encoder: c.encoder()})
	require.NoError(c.t, err)
	c.pins = append(c.pins, pinned.Pin)
}

// However many ask at once, one is served after the other.
func TestManyHosts(t *testing.T) {
	r := newRig(t, setup{pages: pages(40, 12)})
	defer r.end()
	errs := make(chan error)
	const hosts = 8
	for h := range hosts {
		go func() { errs <- runHost(r, h) }()
	}
	for range hosts {
		assert.NoError(t, <-errs)
	}
	r.verify()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Sequences)
	assert.Zero(t, stats.Pools[1].Primary.Used)
}

// runHost admits, forks and releases sequences. It launches no kernels.
func runHost(r *rig, host int) error {
	ctx := context.Background()
	for i := range 50 {
		a, err := r.Admit(ctx, ask(run(100*(1+(host+i)%3), 10), run(0, 6)))
		if errors.Is(err, messages.ErrOutOfPages) {
			continue
		}
		if err != nil {
			return err
		}
		steps := []messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}}
		if i%2 == 0 {
			if _, err := r.Commit(ctx,
				[]messages.CommitStep{{Sequence: a.Sequence, Computed: 6}}); err != nil {
				return err
			}
			forks, err := r.ForkOne(ctx, a.Sequence, 2)
			if err != nil {
				return err
			}
			steps = append(steps, messages.ReleaseStep{Sequence: forks[0], Discard: true},
				messages.ReleaseStep{Sequence: forks[1], Discard: true})
		}
		results, err := r.Release(ctx, steps)
		if err != nil {
			return err
		}
		for _, result := range results {
			if result.Err != nil {
				return result.Err
			}
		}
	}
	return r.Reset(ctx)
}
