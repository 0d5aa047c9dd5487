package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvactor/kvactor/actors/internal/handover"
	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// HandoverConfig bounds the hand-overs of an engine.
type HandoverConfig struct {
	// Model names the weights, such as a hash of their files: a hand-over between engines
	// with different names is refused. With a store and no name it is the store's.
	Model string
	// StagingBytes is the host memory that one hand-over has between pages and connection,
	// beside the engine's host tier; 0 means DefaultStagingBytes. Two pages are the least. Later
	// hand-overs use it again: the engine keeps as much as hand-overs have moved pages at a time.
	StagingBytes int64
	// Concurrent is how many hand-overs move pages at a time; the others wait for their
	// turn. 0 means DefaultConcurrentHandovers.
	Concurrent int
}

// Limits of a HandoverConfig that says nothing.
const (
	DefaultStagingBytes        = 16 << 20
	DefaultConcurrentHandovers = 8
)

// WithHandover bounds hand-overs. An engine without it can hand over, too.
func WithHandover(c HandoverConfig) Option {
	return func(s *settings.Settings) { s.Handover = c }
}

// resolve fills in what the configuration leaves open, and refuses what is wrong.
func (c *HandoverConfig) resolve(store *StoreConfig) error {
	if c.StagingBytes < 0 || c.Concurrent < 0 {
		return refusals.New(messages.ErrConfigInvalid, "WithHandover: a bound is below 0")
	}
	if store != nil {
		c.Model = cmp.Or(c.Model, store.Model)
	}
	c.StagingBytes = cmp.Or(c.StagingBytes, DefaultStagingBytes)
	c.Concurrent = cmp.Or(c.Concurrent, DefaultConcurrentHandovers)
	return nil
}

// Handovers are an engine's ends of connections to other engines. Its methods may be
// called from any number of goroutines, and a hand-over holds up no other request.
//
// One way: Export writes a sequence to any writer, Import reads it, and the host says by
// Exported.Release when the source need not hold the pages any longer. Both ways: Send and Receive
// talk over a connection, so that only the pages go over it that the receiver lacks, and the source
// releases its pages when the receiver has the whole sequence.
//
// When ctx ends, a Read or Write that waits is interrupted if the connection has the method
// SetDeadline of a net.Conn; the host's own are interrupted then, too. Otherwise ctx is looked at
// between two of them. After an error the connection is in the middle of a stream: close it.
type Handovers struct{ engine *Engine }

// HandoversOf returns the hand-overs of an engine. Sequences with several beams are refused
// (ErrNotSupported): a stream has the tokens of one. Between groups of devices every page is the
// shares of all ranks; the groups must have as many.
func HandoversOf(e *Engine) Handovers { return Handovers{e} }

// exchange is what the hand-overs of an engine share: staging memory that is used again,
// and the bound on how many of them move pages at a time.
//
// mu protects the fields below it; turns is a semaphore of its own, since a hand-over may
// wait there for minutes. Staging memory is kept, since to take it costs as much as the copies of a
// hand-over.
type exchange struct {
	engine *Engine
	config *HandoverConfig
	turns  chan struct{} // one entry for each hand-over that moves pages

	ending context.Context // ends when no hand-over may go on: with Close, or with the engine
	end    context.CancelFunc
	open   sync.WaitGroup // hand-overs that can be interrupted

	mu     sync.Mutex
	ended  bool       // by over
	unused []*staging // with the copies that are still under way
	// doubtful is staging memory of hand-overs that failed while the engine may have
	// been submitting copies: it is given back when the engine's streams have ended.
	doubtful []*staging
}

func newExchange(e *Engine, c *HandoverConfig) *exchange {
	x := &exchange{engine: e, config: c, turns: make(chan struct{}, c.Concurrent)}
	x.ending, x.end = context.WithCancel(e.background.ctx)
	return x
}

// session is one hand-over, on its caller's goroutine.
//
// Only that goroutine touches the fields, but for ctx and cancel, which Close and the end
// of the engine use to interrupt it.
type session struct {
	exchange *exchange
	engine   *Engine
	ctx      context.Context // ends with the caller's, and with the engine
	cancel   context.CancelCauseFunc
	calm     func() // ends the watch over the connection
	over     func() // tells a close of the engine, which waits for it
	in       bool

	staging *staging
	turn    bool
	last    messages.Ticket // of its copies
	lost    bool            // copies may be under way that the session does not know
}

// begin starts a session over a stream, which has a name for the refusal of a nil one.
//
// What refuses every hand-over is checked here, before a byte goes over the connection.
// The session is counted under the lock that close takes to end ending: either begin sees that the
// engine is closed, or close waits for the session.
func (x *exchange) begin(
	ctx context.Context, name string, stream any, in bool,
) (*session, error) {
	e := x.engine
	if stream == nil {
		return nil, refusals.New(messages.ErrBadRequest, "%s is nil", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.refusal(); err != nil {
		return nil, err
	}
	s := &session{exchange: x, engine: e, in: in, over: func() {}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	closed := refusals.New(messages.ErrClosed, "the engine is closed")
	if x.ending.Err() != nil {
		s.cancel(nil)
		return nil, closed
	}
	unwatch := context.AfterFunc(x.ending, func() { s.cancel(closed) })
	s.calm = func() { unwatch() }
	connection, interruptible := stream.(interface{ SetDeadline(t time.Time) error })
	if !interruptible {
		return s, nil
	}
	x.open.Add(1)
	// A deadline in the past makes a Read or Write that waits return at once (see net.Conn).
	interrupted := make(chan struct{})
	stop := context.AfterFunc(s.ctx, func() {
		defer close(interrupted)
		// Read and Write say what is wrong with the connection.
		_ = connection.SetDeadline(time.Unix(1, 0))
	})
	// When stop returns false the function above has started. The deadline is taken back
	// only behind it: a connection that the caller goes on to use must not keep a deadline
	// in the past.
	s.calm = func() {
		unwatch()
		if !stop() {
			<-interrupted
			_ = connection.SetDeadline(time.Time{})
		}
	}
	s.over = x.open.Done
	return s, nil
}

// close gives back what the session has.
//
// The watch ends first: after close has returned nothing of the engine touches the
// connection. Memory and turn come before the session is over, so that a close of the exchange
// finds them given back.
func (s *session) close() {
	s.calm()
	s.cancel(nil)
	s.giveBack()
	s.over()
}

// close interrupts the hand-overs and waits for those that can be interrupted.
//
// It goes before the actors stop: a hand-over that is interrupted still releases its hold
// or its sequence by a request. Those over connections without deadlines are not waited for,
// because nothing can end their Read.
func (x *exchange) close(ctx context.Context) {
	x.mu.Lock()
	x.end()
	x.mu.Unlock()
	quiet := make(chan struct{})
	go func() {
		x.open.Wait()
		close(quiet)
	}()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// over gives back the staging memory when nothing is under way on the device any more.
//
// The caller has waited for the engine's streams, the two of hand-overs included, so no copy uses
// it. An error has no caller: the hand-overs have ended, with or without success.
func (x *exchange) over() {
	x.end()
	x.mu.Lock()
	left := append(x.doubtful, x.unused...)
	x.ended, x.doubtful, x.unused = true, nil, nil
	x.mu.Unlock()
	for _, s := range left {
		if err := s.device.DestroyPool(s.pool); err != nil {
			x.engine.log.Error("kvactor: staging memory was not given back", "engine",
				x.engine.settings.Name, "cause", err)
		}
	}
}

// stage waits for the turn of the session and takes staging memory.
//
// A session takes its turn only when the pages are known, and so holds none while it waits
// for the other side to begin. The size follows from the largest page: one staging pool
// serves the pages of all pools.
func (s *session) stage() error {
	x := s.exchange
	select {
	case x.turns <- struct{}{}:
		s.turn = true
	case <-s.ctx.Done():
		return s.failure(nil)
	}
	x.mu.Lock()
	if n := len(x.unused); n > 0 {
		s.staging, x.unused = x.unused[n-1], x.unused[:n-1]
	}
	x.mu.Unlock()
	if s.staging != nil {
		return nil
	}
	largest := int64(0)
	for i := range s.engine.pools {
		largest = max(largest, s.engine.pools[i].PageBytes)
	}
	var err error
	s.staging, err = newStaging(s.engine.config.Device, x.config.StagingBytes, largest)
	return err
}

// giveBack ends the turn and returns the staging memory, perhaps with copies under way, which its
// next owner waits for.
//
// The turn ends last: the next hand-over may then find the memory that this one has
// returned.
func (s *session) giveBack() {
	x := s.exchange
	if s.staging != nil {
		x.mu.Lock()
		if s.lost {
			x.doubtful = append(x.doubtful, s.staging)
		} else {
			x.unused = append(x.unused, s.staging)
		}
		s.staging = nil
		ended := x.ended
		x.mu.Unlock()
		if ended {
			x.over()
		}
	}
	if s.turn {
		<-x.turns
		s.turn = false
	}
}

// do serves one part of the hand-over, beyond the bound of calls in flight: what is under
// way has to come to its end.
func (s *session) do(request any) error { return s.exchange.do(s.ctx, request) }

// do serves a request of the engine's own. It is served also while Close waits for the
// hand-overs.
//
// It passes the gate by: calls that fill the gate could otherwise hold up the release of
// the pages that they wait for.
func (x *exchange) do(ctx context.Context, request any) error {
	e := x.engine
	if err := ctx.Err(); err != nil {
		return err
	}
	if !e.serves() {
		return e.refusal()
	}
	return serveOwn(ctx, e, request)
}

// discard ends a sequence of the hand-over's own, whatever has become of its context.
//
// A sequence that was lost with a failed actor holds no pages, so there is nothing to
// release and no error to report.
func (x *exchange) discard(id messages.SequenceID, after messages.Ticket) error {
	m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: id, Discard: true, After: after}}}
	err := x.do(context.Background(), m)
	for errors.Is(err, messages.ErrInternal) { // an actor failed; the engine ends after too many
		err = x.do(context.Background(), m)
	}
	if err != nil {
		return err
	}
	if err := m.Results[0].Err; err != nil && !errors.Is(err, messages.ErrSequenceLost) {
		return err
	}
	return nil
}

// sync waits until the copies of a batch are over.
func (s *session) sync(batch int) error {
	t := &s.staging.tickets[batch]
	if t.IsZero() {
		return nil
	}
	if err := s.staging.device.Sync(s.ctx, *t); err != nil {
		return s.failure(err)
	}
	*t = messages.Ticket{}
	return nil
}

// failure is what the caller is told of an error: that its context has ended, if it has.
//
// The end of the context comes first: it makes reads, writes and waits fail with errors of
// their own, which would hide the cause.
func (s *session) failure(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("hand-over: %w", cause)
	}
	switch {
	case err == nil || errors.As(err, new(*messages.Refusal)):
		return err
	case errors.Is(err, handover.ErrVersion):
		return &messages.Refusal{Code: messages.ErrNotSupported,
			Message: fmt.Sprintf("hand-over: %v", err), Cause: err}
	case errors.Is(err, handover.ErrRefused) || errors.Is(err, handover.ErrCorrupt):
		return &messages.Refusal{Code: messages.ErrBadStream, Message: fmt.Sprintf("hand-over: %v", err),
			Cause: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &messages.Refusal{Code: messages.ErrBadStream,
			Message: "hand-over: the stream ends too early", Cause: err}
	}
	return fmt.Errorf("hand-over: %w", err)
}

// shape is what the pages of the engine depend on.
//
// Scales of 8-bit elements belong to it: bytes that were quantized by other scales are
// other contents.
func (s *session) shape() (*handover.Shape, error) {
	m := &messages.ReadScales{}
	if err := first(s.do(m), &m.Err); err != nil {
		return nil, err
	}
	e := s.engine
	return &handover.Shape{Model: s.exchange.config.Model, MaxSeqLen: e.validate.MaxSeqLen,
		Pools: e.pools, Ranks: e.config.ranks(), Scales: m.Scales}, nil
}
