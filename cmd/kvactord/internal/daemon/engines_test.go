package daemon

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

func fingerprint(f string) *wire.Open {
	o := opening()
	o.Fingerprint = f
	return o
}

// A model without sessions makes room for another one; one with sessions does not.
func TestAnotherModel(t *testing.T) {
	d := serve(t, nil)
	a := d.open(fingerprint("a"))
	tokens := tokensFrom(50, 2*blockTokens)
	a.store(prompt(tokens), tokens)
	_, err := wire.Dial(d.socket, fingerprint("b"))
	require.ErrorContains(t, err, codeFingerprint)
	other := fingerprint("a")
	other.Groups = other.Groups[:1]
	_, err = wire.Dial(d.socket, other)
	require.ErrorContains(t, err, codeFingerprint)

	require.NoError(t, a.Close())
	in := d.d.engines.latest()
	eventually(t, "the session ends", func() bool { return d.d.engines.sessionsOf(in) == 0 })
	again := d.open(fingerprint("a"))
	assert.Equal(t, a.Opened.Engine, again.Opened.Engine)
	assert.EqualValues(t, len(tokens), again.match(prompt(append(tokens, 1))).Tokens,
		"an engine without sessions keeps what it has")
	require.NoError(t, again.Close())
	eventually(t, "the session ends", func() bool { return d.d.engines.sessionsOf(in) == 0 })

	b := d.open(fingerprint("b"))
	assert.NotEqual(t, a.Opened.Engine, b.Opened.Engine)
	assert.Zero(t, b.match(prompt(append(tokens, 1))).Tokens)
}

// A model whose groups have changed is another one: the old one stays while there is room.
func TestOtherGroupsAreAnotherModel(t *testing.T) {
	for engines, kept := range map[int]int{1: 0, 2: 2 * blockTokens} {
		d := serve(t, func(c *Config) { c.Engines = engines })
		tokens := tokensFrom(50, 2*blockTokens)
		idle := func(c *client) {
			in := d.d.engines.latest()
			require.NoError(t, c.Close())
			eventually(t, "the session ends", func() bool { return d.d.engines.sessionsOf(in) == 0 })
		}
		a := d.open(opening())
		a.store(prompt(tokens), tokens)
		idle(a)
		other := opening()
		other.Groups = other.Groups[:1]
		idle(d.open(other))
		assert.EqualValues(t, kept, d.open(opening()).match(prompt(append(tokens, 1))).Tokens,
			"%d engines", engines)
		assert.Equal(t, kept == 0, strings.Contains(d.logged(), "engine closed"), "it is logged")
		d.stop()
	}
}

// While an engine is opened or closed, the sessions of others go on, and new ones join them.
func TestSlowEnginesDelayNobodyElse(t *testing.T) {
	d := serve(t, func(c *Config) { c.Engines = 2 })
	a := d.open(opening())
	d.d.engines.change <- struct{}{}
	a.used()
	require.NoError(t, d.open(opening()).Close())
	conn, err := net.Dial("unix", d.socket)
	require.NoError(t, err)
	defer conn.Close()
	late := &wire.Request{DeadlineMs: 50, Op: &wire.Request_Open{Open: fingerprint("b")}}
	_, err = conn.Write(frameOf(t, late))
	require.NoError(t, err)
	frame, err := wire.Read(conn, nil, maxTestAnswer)
	require.NoError(t, err)
	answer := &wire.Response{}
	require.NoError(t, wire.Decode(frame, answer))
	assert.Equal(t, codeDeadline, code(answer.Error))
	<-d.d.engines.change
	d.open(fingerprint("b"))
}

// Engines of two runs of a daemon, in one process or with one number, have different names.
func TestNamesOfEngines(t *testing.T) {
	names := map[string]bool{}
	for range 3 {
		d := serve(t, nil)
		names[d.open(opening()).Opened.Engine] = true
		d.stop()
	}
	assert.Len(t, names, 3)
}

// A private session has an engine of its own, which ends with it.
func TestPrivateSessions(t *testing.T) {
	d := serve(t, func(c *Config) { c.Engines = 2 })
	shared := d.open(opening())
	o := opening()
	o.Private = true
	private := d.open(o)
	assert.NotEqual(t, shared.Opened.Pools[0].Path, private.Opened.Pools[0].Path)
	tokens := tokensFrom(50, 2*blockTokens)
	private.store(prompt(tokens), tokens)
	assert.EqualValues(t, len(tokens), private.match(prompt(append(tokens, 1))).Tokens)
	assert.Zero(t, shared.match(prompt(append(tokens, 1))).Tokens)
	_, err := wire.Dial(d.socket, o)
	require.ErrorContains(t, err, codeFingerprint, "two engines have sessions")
	require.NoError(t, private.Close())
	eventually(t, "its engine ends", func() bool {
		c, err := wire.Dial(d.socket, o)
		return err == nil && c.Close() == nil
	})
}

// Ranks have parts of their own in a page, and layers of a group places of their own.
func TestRanksAndLayersDoNotOverlap(t *testing.T) {
	d := serve(t, nil)
	o := opening()
	o.Ranks = 3
	c := d.open(o)
	taken := make([]map[uint64]bool, len(c.Opened.Pools))
	for i, g := range c.Opened.Groups {
		require.Len(t, g.Layers, len(o.Groups[i].LayerBytes))
		for l, place := range g.Layers {
			assert.Equal(t, o.Groups[i].LayerBytes[l], place.Bytes)
			require.Len(t, place.Offsets, 3)
			if taken[place.Pool] == nil {
				taken[place.Pool] = map[uint64]bool{}
			}
			for _, at := range place.Offsets {
				for b := at; b < at+place.Bytes; b++ {
					require.False(t, taken[place.Pool][b], "byte %d of pool %d", b, place.Pool)
					taken[place.Pool][b] = true
				}
			}
		}
	}
	for p, bytes := range taken {
		assert.EqualValues(t, len(bytes), c.Opened.Pools[p].PageBytes)
	}
}

// A model with recurrent layers: a match gets a copy of the state that a write has stored.
func TestStates(t *testing.T) {
	d := serve(t, nil)
	o := opening()
	o.Groups = append(o.Groups, &wire.Group{Name: "state", Kind: wire.Kind_STATE,
		LayerBytes: []uint64{300, 300}})
	c := d.open(o)
	states := len(c.Opened.Pools) - 1
	require.Equal(t, wire.Kind_STATE, c.Opened.Pools[states].Kind)
	tokens := tokensFrom(50, 4*blockTokens)
	r := c.reserve(&wire.Reserve{Prompt: prompt(tokens)})
	require.NotEmpty(t, r.Checkpoints)
	for _, at := range r.Checkpoints {
		if at%blockTokens == 0 && int(at) <= len(tokens) {
			c.fill(r, tokens)
			working := wire.UnpackPages(r.Pages[states])
			require.Len(t, working, 1)
			copy(c.page(states, working[0]), strings.Repeat(string(rune('a'+at/blockTokens)), 600))
			out := c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: at}}}).Written[0]
			require.Nil(t, out.Error)
		}
	}
	c.step(&wire.Step{Releases: []uint64{r.Handle}})
	m := c.match(prompt(append(tokens, 1)))
	require.NotZero(t, m.Tokens)
	page := wire.UnpackPages(m.Pages[states])
	require.Len(t, page, 1)
	assert.Equal(t, strings.Repeat(string(rune('a'+m.Tokens/blockTokens)), 600),
		string(c.page(states, page[0])[:600]))
}

// The page, its metrics, and the events tell no tokens and no salts.
func TestWhatIsTold(t *testing.T) {
	d := serve(t, func(c *Config) { c.Metrics, c.Listen = "127.0.0.1:0", "127.0.0.1:0" })
	get := func(path string) string {
		r, err := http.Get("http://" + d.d.Page().String() + path)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, get("/"), "no session")
	c := d.open(opening())
	tokens := tokensFrom(1918273645, 2*blockTokens)
	events := func(r *wire.EventsRequest) string {
		answer, err := c.Do(&wire.Request{Op: &wire.Request_Events{Events: r}})
		require.NoError(t, err)
		return answer.GetEvents().GetJson()
	}
	assert.Contains(t, events(&wire.EventsRequest{}), `"snapshot":true`)
	c.store(salted(prompt(tokens), "salt-5f3c9a"), tokens)
	c.match(salted(prompt(append(tokens, 1)), "salt-5f3c9a"))
	told := events(&wire.EventsRequest{})
	assert.Contains(t, told, `"stored"`)
	all := told + get("/stats") + get("/metrics") + events(&wire.EventsRequest{Snapshot: true}) +
		d.logged()
	assert.Contains(t, all, "kvactor_")
	assert.NotContains(t, all, "19182736")
	assert.NotContains(t, all, "5f3c9a")

	conn, err := net.Dial("tcp", d.d.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(frameOf(t, opened(nil)))
	require.NoError(t, err)
	frame, err := wire.Read(conn, nil, maxTestAnswer)
	require.NoError(t, err)
	answer := &wire.Response{}
	require.NoError(t, wire.Decode(frame, answer))
	assert.EqualValues(t, os.Getpid(), answer.GetOpen().GetPid())
}

// Pins, invalidations and resets do what the engine does.
func TestPinsAndForgetting(t *testing.T) {
	d := serve(t, nil)
	c := d.open(opening())
	tokens := tokensFrom(50, 2*blockTokens)
	more := append(tokens, 1)
	c.store(prompt(tokens), tokens)
	pin := c.step(&wire.Step{Pins: []*wire.Prompt{prompt(more)}}).Pins[0]
	require.Nil(t, pin.Error)
	assert.EqualValues(t, len(tokens), pin.Tokens)
	assert.Equal(t, codeHandle,
		code(c.step(&wire.Step{Releases: []uint64{pin.Pin}}).Releases[0].Error), "a pin is no claim")
	assert.Nil(t, c.step(&wire.Step{Unpins: []uint64{pin.Pin}}).Unpins[0].Error)
	out := c.step(&wire.Step{Invalidates: []*wire.Selector{{Prefix: prompt(tokens)}}}).Invalidates[0]
	require.Nil(t, out.Error)
	assert.NotZero(t, out.Blocks)
	c.store(prompt(tokens), tokens)
	assert.NotZero(t, c.match(prompt(more)).Tokens)
	_, err := c.Do(&wire.Request{Op: &wire.Request_Reset_{Reset_: &wire.ResetRequest{}}})
	require.NoError(t, err)
	_, err = c.Do(&wire.Request{Op: &wire.Request_Close{Close: &wire.Close{}}})
	require.NoError(t, err)
	_, err = c.Step(&wire.Step{})
	require.Error(t, err, "the daemon has closed the connection")
}
