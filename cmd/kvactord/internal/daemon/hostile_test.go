package daemon

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// raw sends bytes to a new connection and returns the answer to the last of them.
func (s *served) raw(parts ...[]byte) (*wire.Response, error) {
	conn, err := net.Dial("unix", s.socket)
	require.NoError(s.t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	var answer *wire.Response
	for _, part := range parts {
		if _, err := conn.Write(part); err != nil {
			return nil, err
		}
		frame, err := wire.Read(conn, nil, maxTestAnswer)
		if err != nil {
			return nil, err
		}
		answer = &wire.Response{}
		require.NoError(s.t, wire.Decode(frame, answer))
	}
	_, err = conn.Read(make([]byte, 1))
	return answer, err
}

const maxTestAnswer = 1 << 26

func frameOf(t *testing.T, m proto.Message) []byte {
	b, err := wire.Append(nil, m)
	require.NoError(t, err)
	return b
}

func opened(change func(*wire.Open)) *wire.Request {
	o := opening()
	if change != nil {
		change(o)
	}
	return &wire.Request{Op: &wire.Request_Open{Open: o}}
}

func stepOf(s *wire.Step) *wire.Request { return &wire.Request{Op: &wire.Request_Step{Step: s}} }

// Frames that are no requests end the connection, with a reason where there is one to tell.
func TestFramesThatAreRefused(t *testing.T) {
	// A second engine: a session may not have ended quite when its client has read the end.
	d := serve(t, func(c *Config) { c.RequestBytes, c.Engines = 2<<20, 2 })
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	huge := binary.LittleEndian.AppendUint32(nil, 1<<31)
	open := frameOf(t, opened(nil))
	for name, c := range map[string]struct {
		parts [][]byte
		want  string
	}{
		"garbage": {[][]byte{append([]byte{8, 0, 0, 0}, "garbage!"...)}, "bad_request"},
		"an unknown field": {[][]byte{append([]byte{byte(len(unknown)), 0, 0, 0}, unknown...)},
			"bad_request"},
		"a huge first frame": {[][]byte{huge}, codeLimit},
		"a huge frame":       {[][]byte{open, huge}, codeLimit},
		"garbage when open": {[][]byte{open, append([]byte{8, 0, 0, 0}, "garbage!"...)},
			"bad_request"},
		"a step first": {[][]byte{frameOf(t, stepOf(&wire.Step{}))}, "bad_request"},
		"another version": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.Version = 2 }))},
			codeVersion},
		"no groups": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.Groups = nil }))},
			"bad_request"},
		"blocks of 17 tokens": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.BlockTokens = 17 }))},
			"bad_request"},
		"no whole blocks": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.BlockTokens = 0 }))},
			"bad_request"},
		"too many bytes": {[][]byte{frameOf(t,
			opened(func(o *wire.Open) { o.Groups[0].LayerBytes[0] = 1 << 40 }))}, "bad_request"},
		"no memory for a page": {[][]byte{frameOf(t,
			opened(func(o *wire.Open) { o.Fingerprint, o.Groups[0].LayerBytes[0] = "big", 1<<30 }))},
			codeMemory},
		"no fingerprint": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.Fingerprint = "" }))},
			"bad_request"},
		"too many ranks": {[][]byte{frameOf(t, opened(func(o *wire.Open) { o.Ranks = 1 << 31 }))},
			"bad_request"},
		"an unknown kind": {[][]byte{frameOf(t,
			opened(func(o *wire.Open) { o.Groups[0].Kind = 7 }))}, "bad_request"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := d.raw(c.parts...)
			require.ErrorIs(t, err, io.EOF)
			assert.Equal(t, c.want, answer.GetError().GetCode(), answer.GetError().GetMessage())
		})
	}
	d.open(opening()) // the daemon serves others
}

// Every mistake in a step is answered in its entry; the others are served.
func TestEntriesThatAreRefused(t *testing.T) {
	d := serve(t, nil)
	c, other := d.open(opening()), d.open(opening())
	tokens := tokensFrom(50, 4*blockTokens)
	c.store(prompt(tokens), tokens)
	mine := c.match(prompt(append(tokens, 1)))
	write := c.reserve(&wire.Reserve{Prompt: prompt(tokensFrom(7000, 2*blockTokens))})
	negative := append([]int32{-5}, tokens...)

	out := other.step(&wire.Step{
		Written:  []*wire.Written{{Handle: write.Handle, Tokens: blockTokens}, {Handle: 1 << 60}, {}},
		Releases: []uint64{mine.Handle, write.Handle, 0},
		Matches: []*wire.Match{
			{}, {Prompt: &wire.Prompt{}}, {Prompt: &wire.Prompt{Tokens: []byte{1, 2, 3}}},
			{Prompt: prompt(negative)},
			{Prompt: &wire.Prompt{Tokens: wire.PackTokens(tokens),
				Items: []*wire.Item{{Hash: []byte("short"), Length: 1}}}},
			{Prompt: &wire.Prompt{Tokens: wire.PackTokens(tokens),
				Items: []*wire.Item{{Hash: make([]byte, 32), Start: 60, Length: 600}}}},
			{Prompt: prompt(append(tokens, 2))},
		},
		Reserves: []*wire.Reserve{
			{Prompt: prompt(tokens[:blockTokens+1])},
			{Prompt: prompt(tokensFrom(1, blockTokens)),
				Retention: &wire.Retention{Ranges: []*wire.RetentionRange{{Priority: 101}}}},
			{Prompt: prompt(tokensFrom(1, blockTokens)),
				Retention: &wire.Retention{Ranges: []*wire.RetentionRange{{DurationMs: 1 << 63}}}},
			{Prompt: prompt(tokensFrom(1, blockTokens)),
				Retention: &wire.Retention{Ranges: []*wire.RetentionRange{{Start: 9, End: proto.Uint32(3)}}}},
			{Prompt: prompt(tokensFrom(1, 100000*blockTokens))},
		},
		Extends:     []*wire.Extend{{Handle: write.Handle, Tokens: wire.PackTokens(tokens)}},
		Pins:        []*wire.Prompt{{}},
		Unpins:      []uint64{mine.Handle, 0},
		Lookups:     []*wire.Prompt{nil, prompt(append(tokens, 2))},
		Prefetches:  []*wire.Prompt{{}},
		Invalidates: []*wire.Selector{{}, {Session: "a", Salt: "b"}},
	})
	for i, w := range out.Written {
		assert.Equal(t, codeHandle, code(w.Error), "written %d: %v", i, w.Error)
	}
	for i, r := range out.Releases {
		assert.Equal(t, codeHandle, code(r.Error), "release %d: %v", i, r.Error)
	}
	for i, m := range out.Matches[:6] {
		assert.Equal(t, "bad_request", code(m.Error), "match %d: %v", i, m.Error)
		assert.NotContains(t, m.Error.GetMessage(), "4294967291")
	}
	require.Nil(t, out.Matches[6].Error)
	assert.EqualValues(t, len(tokens), out.Matches[6].Tokens)
	for i, r := range out.Reserves[:4] {
		assert.Equal(t, "bad_request", code(r.Error), "reserve %d: %v", i, r.Error)
	}
	assert.Equal(t, "out_of_pages", code(out.Reserves[4].Error))
	assert.True(t, out.Reserves[4].Error.GetNever())
	assert.Equal(t, codeHandle, code(out.Extends[0].Error))
	assert.Equal(t, "bad_request", code(out.Pins[0].Error))
	assert.Equal(t, codeHandle, code(out.Unpins[0].Error))
	assert.Equal(t, "bad_request", code(out.Lookups[0].Error))
	assert.EqualValues(t, len(tokens), out.Lookups[1].Tokens)
	assert.Equal(t, "bad_request", code(out.Prefetches[0].Error))
	for _, x := range out.Invalidates {
		assert.Equal(t, "bad_request", code(x.Error))
	}
}

// A write takes growing lengths of whole blocks, each in a step of its own; a claim takes none.
func TestWritesThatAreRefused(t *testing.T) {
	d := serve(t, nil)
	c := d.open(opening())
	tokens := tokensFrom(50, 4*blockTokens)
	c.store(prompt(tokens), tokens)
	mine := c.match(prompt(append(tokens, 1)))
	write := c.reserve(&wire.Reserve{Prompt: prompt(tokensFrom(7000, 2*blockTokens))})
	own := c.step(&wire.Step{Written: []*wire.Written{
		{Handle: mine.Handle, Tokens: blockTokens}, {Handle: write.Handle, Tokens: blockTokens},
		{Handle: write.Handle, Tokens: 2 * blockTokens},
		{Handle: write.Handle, Tokens: 3 * blockTokens}, {Handle: write.Handle, Tokens: 7},
		{Handle: write.Handle, Tokens: 1<<32 - 16},
	}}).Written
	for i, want := range []string{codeHandle, "", "bad_request", "bad_request", "bad_request",
		"bad_request"} {
		assert.Equal(t, want, code(own[i].Error), "written %d: %v", i, own[i].Error)
	}
	twice := c.step(&wire.Step{Releases: []uint64{mine.Handle, mine.Handle}}).Releases
	assert.Nil(t, twice[0].Error)
	assert.Equal(t, codeHandle, code(twice[1].Error))
	again, err := c.Do(opened(nil))
	require.Error(t, err)
	assert.Equal(t, "bad_request", again.GetError().GetCode())
	_, err = c.Do(&wire.Request{})
	require.Error(t, err)
}

// A session holds no more than the bound.
func TestHandlesAreBounded(t *testing.T) {
	d := serve(t, func(c *Config) { c.Handles = 2 })
	c := d.open(opening())
	tokens := tokensFrom(50, 2*blockTokens)
	c.store(prompt(tokens), tokens)
	more := prompt(append(tokens, 1))
	out := c.step(&wire.Step{
		Matches:  []*wire.Match{{Prompt: more}, {Prompt: more}, {Prompt: more}},
		Pins:     []*wire.Prompt{more},
		Reserves: []*wire.Reserve{{Prompt: prompt(tokensFrom(900, blockTokens))}},
	})
	assert.NotZero(t, out.Matches[1].Handle)
	assert.Equal(t, codeLimit, code(out.Matches[2].Error))
	assert.Equal(t, codeLimit, code(out.Pins[0].Error))
	assert.Equal(t, codeLimit, code(out.Reserves[0].Error))
	_, err := c.Step(&wire.Step{Releases: make([]uint64, maxEntries+1)})
	assert.ErrorContains(t, err, "at most")
}

// FuzzSession sends any bytes to a session that is open.
func FuzzSession(f *testing.F) {
	add := func(m proto.Message) {
		b, err := wire.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	tokens := wire.PackTokens(tokensFrom(50, 2*blockTokens))
	p := &wire.Prompt{Tokens: tokens, Salt: "s", Adapter: proto.String("a"),
		Items: []*wire.Item{{Hash: make([]byte, 32), Start: 3, Length: 5}}}
	add(stepOf(&wire.Step{Matches: []*wire.Match{{Prompt: p}}, Lookups: []*wire.Prompt{p},
		Pins: []*wire.Prompt{p}, Unpins: []uint64{1}}))
	add(stepOf(
		&wire.Step{Reserves: []*wire.Reserve{{Prompt: p,
			Retention: &wire.Retention{Ranges: []*wire.RetentionRange{{Priority: 3}}}}}}))
	add(stepOf(&wire.Step{Written: []*wire.Written{{Handle: 2, Tokens: 16}}, Releases: []uint64{2},
		Extends: []*wire.Extend{{Handle: 2, Tokens: tokens}}}))
	add(stepOf(&wire.Step{Invalidates: []*wire.Selector{{Salt: "s"}}, Prefetches: []*wire.Prompt{p}}))
	add(&wire.Request{Op: &wire.Request_Events{Events: &wire.EventsRequest{}}})
	add(&wire.Request{Op: &wire.Request_Reset_{Reset_: &wire.ResetRequest{}}})
	c := Defaults()
	c.Socket, c.MemoryBytes, c.RequestBytes = f.TempDir()+"/s", 1<<20, 1<<20
	d, err := Open(c)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	f.Cleanup(func() {
		cancel()
		<-ended
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		client, err := wire.Dial(c.Socket, opening())
		require.NoError(t, err)
		watcher, err := wire.Dial(c.Socket, opening())
		require.NoError(t, err)
		in := d.engines.latest()
		conn := client.Conn()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		go func() {
			_, _ = conn.Write(data)
			_ = conn.(*net.UnixConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, conn)
		require.NoError(t, client.Close())
		eventually(t, "the session ends", func() bool { return d.engines.sessionsOf(in) == 1 })
		require.NoError(t, in.engine.Check(t.Context()))
		stats, err := in.engine.Stats(t.Context())
		require.NoError(t, err)
		for _, p := range stats.Pools {
			require.Zero(t, p.Primary.Used, fmt.Sprint(p.Name))
		}
		require.NoError(t, watcher.Close())
	})
}

// A thousand sessions come and go, and leave nothing.
func TestAThousandSessions(t *testing.T) {
	d := serve(t, nil)
	watcher := d.open(opening())
	tokens := tokensFrom(50, 2*blockTokens)
	watcher.store(prompt(tokens), tokens)
	more := prompt(append(tokens, 1))
	list := make([]*wire.Client, 1000)
	for i := range list {
		c, err := wire.Dial(d.socket, opening())
		require.NoError(t, err)
		list[i] = c
		out, err := c.Step(&wire.Step{
			Matches:  []*wire.Match{{Prompt: more}},
			Reserves: []*wire.Reserve{{Prompt: prompt(tokensFrom(int32(1000+100*i), blockTokens))}},
			Pins:     []*wire.Prompt{more},
		})
		require.NoError(t, err)
		require.EqualValues(t, len(tokens), out.Matches[0].Tokens, "%d: %v", i, out)
	}
	assert.Positive(t, watcher.used())
	for _, c := range list {
		require.NoError(t, c.Close())
	}
	in := d.d.engines.latest()
	eventually(t, "all sessions end", func() bool { return d.d.engines.sessionsOf(in) == 1 })
	assert.Zero(t, watcher.used())
	require.NoError(t, in.engine.Check(t.Context()))
}
