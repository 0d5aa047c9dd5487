package actors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
)

// wire is one end of a connection that damages what is written to it, once.
type wire struct {
	net.Conn
	left int // bytes before the damage
	hit  bool
	do   func(b []byte) (send []byte, err error) // nil: nothing happens
}

func (w *wire) Write(b []byte) (int, error) {
	if w.do == nil || w.hit || w.left >= len(b) {
		w.left -= len(b)
		return w.Conn.Write(b)
	}
	w.hit = true
	damaged, err := w.do(slices.Clone(b))
	if n, failed := w.Conn.Write(damaged); failed != nil {
		return n, failed
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// flip damages one byte.
func (w *wire) flip(mask byte) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		b[w.left] ^= mask
		return b, nil
	}
}

// cut ends the connection.
func (w *wire) cut(b []byte) ([]byte, error) { return b[:w.left], io.ErrClosedPipe }

// trial is one hand-over and what goes wrong with it.
type trial struct {
	*pair
	from, to       int
	guest          *guest
	both           bool // Send and Receive
	kind           string
	pages          int // where the pages begin in the stream
	at             int // where it is damaged
	source, target *wire
	contexts       [2]context.Context // of the source and the receiver
	cancel         [2]context.CancelFunc
	closed         int // the engine that is closed, -1 for none
	closing        sync.WaitGroup
	leaked         int // pages that were held when the engine was closed
	closeErr       error
}

// patience is far beyond what a hand-over takes: one that takes as long stands still.
const patience = time.Minute

// kinds of what goes wrong. The first is the one that a case is shrunk to.
var kinds = []string{
	"nothing", "cut", "flip", "cut answers", "flip answers", "cancel source", "cancel receiver",
	"fail source", "fail receiver", "close source", "close receiver", "go on", "admit",
	"resize source", "resize receiver",
}

// handOver hands a sequence over to the other engine.
func (p *pair) handOver(end int, g *guest) {
	t := &trial{pair: p, from: end, to: 1 - end, guest: g, both: p.one(2, "both ways"), closed: -1}
	t.kind = kinds[p.int(0, len(kinds)-1, "kind")]
	sent := guest{&sequence{prompt: g.prompt, computed: g.computed}, g.request, slices.Clone(g.tokens)}
	t.prepare()
	m, sendErr, err := t.run()
	t.closing.Wait()
	t.checkErrors(sendErr, err)
	if t.closed >= 0 {
		t.reopen(err)
	}
	if err == nil && t.closed != t.to {
		t.landed(sent, m)
	}
	for i := range p.ends {
		p.dropLost(i)
	}
}

// reopen opens the engine again that was closed. If nothing ran on it, nothing was left, but
// for the hold of an export that was complete.
func (t *trial) reopen(err error) {
	require.NoError(t, t.closeErr)
	if len(t.running[t.closed]) == 0 && err != nil {
		require.Zero(t, t.leaked, "pages")
	}
	t.ends[t.closed].ended()
	t.open(t.closed)
}

// landed takes the sequence over that has come. An actor that fails behind the hand-over
// may have cost it.
func (t *trial) landed(sent guest, m *actors.Imported) {
	if t.kind == "fail receiver" || t.kind == "fail source" {
		t.running[t.to] = append(t.running[t.to], &guest{arrived(m), sent.request, sent.tokens})
		return
	}
	t.arrivedAs(t.to, sent, m)
}

// prepare makes the connection and draws where it is damaged.
func (t *trial) prepare() {
	a, b := net.Pipe()
	t.source, t.target = &wire{Conn: a}, &wire{Conn: b}
	for i := range t.contexts {
		t.contexts[i], t.cancel[i] = context.WithTimeout(context.Background(), patience)
	}
	if t.kind == "nothing" {
		return
	}
	at := &t.source.left
	w := t.source
	if t.kind == "cut answers" || t.kind == "flip answers" {
		w, at = t.target, &t.target.left
		*at = t.int(0, 80, "byte")
	} else {
		*at = t.int(0, t.measure()-1, "byte")
		t.at = *at
	}
	mask := byte(1 << t.int(0, 7, "bit"))
	switch t.kind {
	case "cut", "cut answers":
		w.do = w.cut
	case "flip", "flip answers":
		w.do = w.flip(mask)
	default:
		event := t.event()
		w.do = func(b []byte) ([]byte, error) { event(); return b, nil }
	}
}

// measure is the length of the stream when nothing goes wrong. It notes where the pages begin.
func (t *trial) measure() int {
	var stream bytes.Buffer
	x, err := actors.HandoversOf(t.ends[t.from].Engine).Export(context.Background(), t.guest.id,
		&stream)
	if err != nil {
		t.tolerate(err, messages.ErrOutOfPages)
		return 1
	}
	require.NoError(t, x.Release(context.Background()))
	require.EqualValues(t, stream.Len(), x.Bytes)
	t.pages = headerBytes + int(binary.LittleEndian.Uint64(stream.Bytes()[lengthAt:]))
	return stream.Len()
}

// event draws what happens in the middle of the stream. It runs on the goroutine of the
// source, while the test waits for both ends.
func (t *trial) event() func() {
	switch t.kind {
	case "cancel source":
		return t.cancel[0]
	case "cancel receiver":
		return t.cancel[1]
	case "fail source", "fail receiver":
		r := t.ends[t.engineOf()]
		actor := []string{"coordinator", "tree", "offloader", "pool:" +
			r.Pools()[0].Name}[t.int(0, 3, "actor")]
		return func() { _ = r.points.Arm(actor) }
	case "close source", "close receiver":
		end := t.engineOf()
		t.ends[end].awaitKernels()
		return func() {
			t.closed = end
			t.closing.Go(func() { t.leaked, t.closeErr = t.ends[end].Close(context.Background()) })
		}
	case "resize source", "resize receiver":
		r, pages := t.ends[t.engineOf()], []int{}
		for _, c := range t.setup.pages {
			pages = append(pages, c.Primary+t.int(-3, 0, "pages"))
		}
		return func() { _, _ = r.Resize(context.Background(), pages) } // too few for what runs: refused
	case "go on":
		return t.goOn()
	}
	request := t.request()
	return func() { t.admitAndRelease(request) }
}

// engineOf is the engine that the kind names.
func (t *trial) engineOf() int {
	if slices.Contains([]string{"fail source", "close source", "resize source"}, t.kind) {
		return t.from
	}
	return t.to
}

// goOn releases the sequence, or writes to it: the pages that are handed over stay.
func (t *trial) goOn() func() {
	if t.one(2, "release") {
		return func() { t.releaseOne(t.from, t.guest) }
	}
	return func() {
		r := t.ends[t.from]
		if err := r.decode(r.writer, t.guest.sequence, 900); err == nil {
			t.guest.tokens = append(t.guest.tokens, 900)
		}
	}
}

// admitAndRelease uses up pages at the receiver, which evicts others for them.
func (t *trial) admitAndRelease(request messages.AdmitRequest) {
	r := t.ends[t.to]
	if a, err := r.Admit(context.Background(), request); err == nil {
		g := admitted(request, &a)
		_ = r.compute(r.writer, g, len(request.Tokens))
		_ = r.release(g)
	}
}

// run does the hand-over. Each side closes its end of the connection when it has failed, as
// a host does.
func (t *trial) run() (m *actors.Imported, sendErr, err error) {
	from, to := actors.HandoversOf(t.ends[t.from].Engine), actors.HandoversOf(t.ends[t.to].Engine)
	sent := make(chan error, 1)
	go func() {
		var x *actors.Exported
		var err error
		if t.both {
			x, err = from.Send(t.contexts[0], t.guest.id, t.source)
		} else {
			x, err = from.Export(t.contexts[0], t.guest.id, t.source)
		}
		if err == nil {
			_ = x.Release(context.Background()) // of Send: it has released them
		}
		sent <- errors.Join(err, t.source.Close())
	}()
	if t.both {
		m, err = to.Receive(t.contexts[1], t.target)
	} else {
		m, err = to.Import(t.contexts[1], t.target)
	}
	_ = t.target.Close()
	sendErr = <-sent
	t.cancel[0]()
	t.cancel[1]()
	return m, sendErr, err
}

// checkErrors holds the two answers against each other and against what has happened.
func (t *trial) checkErrors(sendErr, err error) {
	for _, e := range []error{sendErr, err} {
		require.NotErrorIs(t, e, context.DeadlineExceeded, "%s at byte %d: both sides wait", t.kind,
			t.source.left)
	}
	switch {
	case t.both && sendErr == nil:
		require.NoError(t, err, "the source was told of a sequence that is not there")
	case t.kind == "nothing" && err != nil:
		t.tolerate(err, messages.ErrOutOfPages, messages.ErrBadStream)
	}
	if t.source.hit && (t.kind == "cut" || t.kind == "flip") {
		// A receiver without pages refuses when it has read what comes before them, while the
		// source writes on: what is damaged behind has not been read.
		if !errors.Is(err, messages.ErrOutOfPages) || t.at < t.pages {
			require.ErrorIs(t, err, messages.ErrBadStream, t.kind)
		}
	}
	if t.target.hit && t.both {
		require.Error(t, sendErr, "%s at byte %d of the answers", t.kind, t.target.left)
	}
	if errors.Is(err, messages.ErrBadStream) && t.kind == "nothing" {
		require.ErrorIs(t, sendErr, messages.ErrOutOfPages,
			"the source has no page for a state, and the receiver no stream")
	}
}
