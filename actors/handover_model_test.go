package actors_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Two engines of one random geometry hand random sequences over while something goes wrong:
// the stream is cut or damaged at any byte, either side is cancelled, closed, resized, or
// loses an actor, or the host goes on with the sequence. What is held against the engines
// after each step: all invariants, every byte of every page that the tree or a sequence
// holds, and the list of the sequences that run, since a hand-over is all or nothing. A
// sequence that has arrived has the tokens and attributes of the source, and can be decoded.

func TestRandomHandovers(t *testing.T) {
	system := newSystem()
	defer shutdown(system)
	rapid.Check(t, func(rt *rapid.T) { randomHandovers(&drawn{t, rt}, system) })
}

// drawn is a test whose failures are those of a drawn case, so that the case is shrunk.
type drawn struct {
	testing.TB
	rt *rapid.T
}

func (d *drawn) Error(args ...any)                 { d.rt.Error(args...) }
func (d *drawn) Errorf(format string, args ...any) { d.rt.Errorf(format, args...) }
func (d *drawn) FailNow()                          { d.rt.FailNow() }
func (d *drawn) Helper()                           {}
func (d *drawn) Logf(format string, args ...any)   { d.rt.Logf(format, args...) }

func (d *drawn) int(from, to int, label string) int {
	return rapid.IntRange(from, to).Draw(d.rt, label)
}
func (d *drawn) one(n int, label string) bool { return d.int(0, n-1, label) == n-1 }

// guest is a running sequence and what its host has said of it.
type guest struct {
	*sequence
	request messages.AdmitRequest
	tokens  []messages.Token // the generated ones included
}

// pair is two engines and the sequences that run on each of them.
type pair struct {
	*drawn
	setup   setup
	options []actors.Option
	ends    [2]*rig
	running [2][]*guest
}

func randomHandovers(d *drawn, system *actor.ActorSystem) {
	p := &pair{drawn: d, setup: drawGeometry(d)}
	p.setup.parent = system.Root
	p.options = []actors.Option{
		actors.WithRestartLimit(1000, time.Hour),
		actors.WithHandover(
			actors.HandoverConfig{StagingBytes: int64([]int{1, 0}[d.int(0, 1, "staging")])}),
	}
	defer p.abandon()
	for i := range p.ends {
		p.open(i)
	}
	d.rt.Repeat(map[string]func(*rapid.T){
		"":         func(*rapid.T) { p.verify() },
		"arrive":   func(*rapid.T) { p.arrive(d.int(0, 1, "end")) },
		"decode":   func(*rapid.T) { p.onOne(p.decodeOne) },
		"append":   func(*rapid.T) { p.onOne(p.appendOne) },
		"release":  func(*rapid.T) { p.onOne(p.releaseOne) },
		"silence":  func(*rapid.T) { p.silence(d.int(0, 1, "end")) },
		"hand":     func(*rapid.T) { p.onOne(p.handOver) },
		"handover": func(*rapid.T) { p.onOne(p.handOver) },
	})
	for i := range p.ends {
		p.finish(i)
	}
}

// drawGeometry draws a model with one to three kinds of layers, with and without sinks,
// states and host memory, on one device or two. Both engines have the same pools; there is
// room for few sequences.
func drawGeometry(d *drawn) setup {
	s := setup{windows: [][]int{{full}, {full, 8}, {8, 16}, {full, 8, 16}}[d.int(0, 3, "windows")],
		ranks: 2 * d.int(0, 1, "ranks")}
	sinks := d.int(0, 1, "sink blocks")
	states := d.one(3, "states")
	if d.one(8, "states alone") {
		states, s.windows = true, nil
	}
	if states {
		s.windows = append(slices.Clone(s.windows), full)
	}
	s.change = func(c *windows.Config) { c.SinkTokenLength = tpb * sinks }
	s.model = func(m *windows.Model) {
		if states {
			m.KVHeads = append(slices.Repeat([]int{1}, m.Layers-1), 0)
			m.States = []windows.State{{Layers: []int{m.Layers - 1}, Bytes: 24}}
		}
	}
	for range s.windows {
		s.pages = append(s.pages, windows.PageCounts{Primary: d.int(10, 24, "pages"),
			Secondary: d.int(0, 4, "host pages")})
	}
	return s
}

func (p *pair) open(i int) {
	p.ends[i] = newRig(p.drawn, p.setup, p.options...)
	p.running[i] = nil
}

// abandon closes the engines of a case that was broken off.
func (p *pair) abandon() {
	for _, r := range p.ends {
		if r != nil {
			_, _ = r.Close(context.Background())
		}
	}
}

// finish ends an engine, which holds nothing then.
func (p *pair) finish(i int) {
	for len(p.running[i]) > 0 {
		p.releaseOne(i, p.running[i][0])
	}
	p.ends[i].verify()
	require.NoError(p, p.ends[i].Reset(context.Background()))
	p.ends[i].unchanged(p)
	p.ends[i].close()
	p.ends[i] = nil
}

// verify holds both engines against what their hosts know.
func (p *pair) verify() {
	for i, r := range p.ends {
		var running []*sequence
		for _, g := range p.running[i] {
			running = append(running, g.sequence)
		}
		r.verify(running...)
		require.Empty(p, r.writer.Problems())
		stats, err := r.Stats(context.Background())
		require.NoError(p, err)
		require.Equal(p, len(running), stats.Sequences, "sequences of engine %d", i)
	}
}

// onOne does something with one of the sequences, if there are any.
func (p *pair) onOne(do func(end int, g *guest)) {
	n := len(p.running[0]) + len(p.running[1])
	if n == 0 {
		p.arrive(0)
		return
	}
	at, end := p.int(0, n-1, "sequence"), 0
	if at >= len(p.running[0]) {
		at, end = at-len(p.running[0]), 1
	}
	do(end, p.running[end][at])
}

// tolerate fails the case unless an error is nil or one of those that may be.
func (p *pair) tolerate(err error, may ...error) {
	p.Helper()
	if err != nil && !slices.ContainsFunc(may, func(e error) bool { return errors.Is(err, e) }) {
		require.NoError(p, err)
	}
}

// request draws a prompt that begins like others.
func (p *pair) request() messages.AdmitRequest {
	r := messages.AdmitRequest{Tokens: run(1000*p.int(0, 1, "prompt"), p.int(1, 26, "tokens"))}
	if p.one(4, "namespace") {
		r.Namespace = messages.Namespace{Salt: "\xff", LoRA: "l", HasLoRA: true}
	}
	if p.one(4, "session") {
		r.Session = "s"
	}
	if p.one(4, "retention") {
		r.Retention = &messages.Retention{
			Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt,
				Priority: messages.Priority(p.int(0, 100, "priority")), Duration: time.Hour}},
			Decode: &messages.DecodeRetention{Priority: 10},
		}
	}
	if len(r.Tokens) > 4 && p.one(4, "item") {
		r.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1,
			Length: p.int(1, len(r.Tokens)-1, "covered")}}
	}
	return r
}

// arrive admits a sequence and computes its prompt.
func (p *pair) arrive(end int) {
	r, request := p.ends[end], p.request()
	a, err := r.Admit(context.Background(), request)
	if err != nil {
		p.tolerate(err, messages.ErrOutOfPages)
		return
	}
	g := &guest{admitted(request, &a), request, slices.Clone(request.Tokens)}
	require.NoError(p, r.compute(r.writer, g.sequence, len(request.Tokens)))
	p.running[end] = append(p.running[end], g)
}

// decodeOne appends a token and computes all before it.
func (p *pair) decodeOne(end int, g *guest) {
	if p.appended(end, g, 1) {
		require.NoError(p, p.ends[end].compute(p.ends[end].writer, g.sequence, len(g.chains)-1))
	}
}

// appendOne appends tokens that are not computed.
func (p *pair) appendOne(end int, g *guest) { p.appended(end, g, p.int(1, 5, "appended")) }

func (p *pair) appended(end int, g *guest, n int) bool {
	tokens := run(p.int(500, 501, "sampled"), n)
	results, err := p.ends[end].Append(context.Background(),
		[]messages.AppendStep{{Sequence: g.id, Tokens: tokens}})
	require.NoError(p, err)
	if err := results[0].Err; err != nil {
		p.tolerate(err, messages.ErrOutOfPages)
		return false
	}
	for _, t := range tokens {
		g.chains = append(g.chains, g.chains[len(g.chains)-1].Next(t, messages.Cover{}))
	}
	g.tokens, g.ready = append(g.tokens, tokens...), append(g.ready, results[0].Ready...)
	return true
}

func (p *pair) releaseOne(end int, g *guest) {
	require.NoError(p, p.ends[end].release(g.sequence))
	p.forget(end, g)
}

func (p *pair) forget(end int, g *guest) {
	p.running[end] = slices.DeleteFunc(p.running[end], func(o *guest) bool { return o == g })
}

// silence makes the sequences of a session store nothing from then on.
func (p *pair) silence(end int) {
	_, err := p.ends[end].Invalidate(context.Background(), messages.Selector{Session: "s"})
	require.NoError(p, err)
}

// dropLost releases the sequences that a failed actor has cost an engine. The request that
// the armed actor fails over has been served when Check answers.
func (p *pair) dropLost(end int) {
	ctx := context.Background()
	p.ends[end].sim.Drain()
	require.NoError(p, enginetest.Repeat(func() error { return p.ends[end].Check(ctx) }))
	for _, g := range slices.Clone(p.running[end]) {
		if _, err := p.ends[end].TablesOf(ctx, g.id); err != nil {
			require.ErrorIs(p, err, messages.ErrSequenceLost)
			results, err := p.ends[end].Release(ctx, []messages.ReleaseStep{{Sequence: g.id, After: g.last}})
			require.NoError(p, err)
			p.tolerate(results[0].Err, messages.ErrSequenceLost)
			p.forget(end, g)
		}
	}
}

// arrivedAs notes a sequence that has come, which must be what it was at the source.
func (p *pair) arrivedAs(end int, sent guest, m *actors.Imported) {
	require.Equal(p, sent.tokens, m.Tokens)
	require.Equal(p, []int{sent.prompt, sent.computed}, []int{m.Prompt, m.Computed})
	require.Equal(p, sent.request.Namespace, m.Namespace)
	require.Equal(p, sent.request.Session, m.Session)
	require.Equal(p, sent.request.Retention, m.Retention)
	require.Equal(p, sent.request.Multimodal, m.Multimodal)
	g := &guest{arrived(m), sent.request, slices.Clone(sent.tokens)}
	p.running[end] = append(p.running[end], g)
	p.verify()
	if p.one(2, "decode at the receiver") {
		p.decodeOne(end, g)
	}
}
