package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// session is one connection. Its goroutine alone uses it, but for attached.
type session struct {
	daemon *Daemon
	conn   net.Conn
	peer   peer
	name   string
	in     *instance // nil: not opened yet
	closed bool      // by Close: the client's copies have ended

	attached attachments
	owner    *session // whose attachment this connection is; nil: of none

	handles map[uint64]*handle
	reader  kvactor.ReaderID // of events; 0: none yet

	frame, reply []byte
}

const (
	// openBytes bounds the first frame, before the daemon knows who it is.
	openBytes = 1 << 20
	// openTime is how long a connection may take to say who it is, and frameTime how long
	// a frame may take from its first byte to its last, in either direction.
	openTime = 10 * time.Second
	// maxDeadline bounds what a request may ask for.
	maxDeadline = 5 * time.Minute
	frameTime   = 30 * time.Second
	// keptBytes is the largest buffer that is kept between two requests.
	keptBytes = 4 << 20
)

// run serves the connection, and keeps the pages that the session holds until everyone who may
// copy has closed. A process that is killed has its connections closed by the system.
func (s *session) run() {
	s.serve()
	s.daemon.serving.Done()
	switch {
	case s.owner != nil:
		s.detach()
	case s.in == nil:
		_ = s.conn.Close()
	default:
		s.end()
	}
}

// end gives back everything that the session holds, when its pages may be reused.
func (s *session) end() {
	s.daemon.config.Log.Info("session ended",
		"client", s.name, "pid", s.peer.pid, "engine", s.in.serial, "held", len(s.handles))
	s.endAttachments()
	if !s.in.broken.Load() { // memory of an engine that has failed is not used again
		if !s.closed {
			halfClose(s.conn)
			s.untilClosed()
		}
		s.attached.open.Wait()
	}
	_ = s.conn.Close()
	s.releaseAll()
	s.daemon.engines.release(s.in)
}

// serve serves requests until the session ends.
func (s *session) serve() {
	defer func() {
		if r := recover(); r != nil { // of the daemon: the other sessions go on
			s.daemon.config.Log.Error("session panicked", "client", s.name, "pid", s.peer.pid, "panic",
				fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	r := bufio.NewReaderSize(s.conn, 64<<10)
	for {
		request, err := s.read(r)
		if err != nil {
			s.refuseFrame(err)
			return
		}
		if a, attaches := request.GetOp().(*wire.Request_Attach); attaches && s.in == nil {
			_ = s.write(&wire.Response{
				Id: request.GetId(), Error: s.attach(a.Attach),
				Op: &wire.Response_Attach{Attach: &wire.Attached{}},
			})
			return
		}
		answer, last := s.answer(request)
		if err := s.write(answer); err != nil || last {
			return
		}
	}
}

// read reads the next request.
func (s *session) read(r *bufio.Reader) (*wire.Request, error) {
	limit := s.daemon.config.RequestBytes
	if s.in == nil {
		limit = openBytes
		s.deadline(openTime)
	}
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	s.deadline(s.daemon.frameTime)
	var err error
	if s.frame, err = wire.Read(r, s.frame, limit); err != nil {
		return nil, err
	}
	s.deadline(0)
	request := &wire.Request{}
	err = wire.Decode(s.frame, request)
	if cap(s.frame) > keptBytes {
		s.frame = nil
	}
	return request, err
}

// deadline sets when the next read ends; 0: never. When the daemon stops, it has set a deadline
// of its own, which stays.
func (s *session) deadline(after time.Duration) {
	s.daemon.mu.Lock()
	defer s.daemon.mu.Unlock()
	var at time.Time
	if after > 0 {
		at = time.Now().Add(after)
	}
	if !s.daemon.stopping {
		_ = s.conn.SetReadDeadline(at)
	}
}

// refuseFrame says why the connection is closed, if the client may not know.
func (s *session) refuseFrame(err error) {
	log := s.daemon.config.Log
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = s.write(
			&wire.Response{Error: errorf(codeDeadline,
				"no request came in time, or the daemon is stopping")})
	case errors.Is(err, wire.ErrTooLarge):
		_ = s.write(&wire.Response{Error: errorf(codeLimit, "%v", err)})
		log.Warn("frame refused", "client", s.name, "pid", s.peer.pid, "error", err)
	case errors.Is(err, wire.ErrGarbage):
		_ = s.write(&wire.Response{Error: badf("%v", err)})
		log.Warn("frame refused", "client", s.name, "pid", s.peer.pid, "error", err)
	default:
		log.Info("connection lost", "client", s.name, "pid", s.peer.pid, "error", err)
	}
}

// write sends an answer. A client that does not read loses its session.
func (s *session) write(m proto.Message) error {
	var err error
	if s.reply, err = wire.Append(s.reply[:0], m); err != nil {
		return err
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.daemon.frameTime))
	_, err = s.conn.Write(s.reply)
	if cap(s.reply) > keptBytes {
		s.reply = nil
	}
	return err
}

// answer serves one request; last: the connection ends with the answer.
func (s *session) answer(r *wire.Request) (_ *wire.Response, last bool) {
	limit := s.daemon.config.Deadline
	if ms := r.GetDeadlineMs(); ms > 0 {
		limit = min(time.Duration(ms)*time.Millisecond, maxDeadline)
	}
	ctx, cancel := context.WithTimeout(s.daemon.ctx, limit)
	defer cancel()
	out := &wire.Response{Id: r.GetId()}
	open, opens := r.GetOp().(*wire.Request_Open)
	switch {
	case s.in == nil && !opens:
		out.Error = badf("the first request is not Open")
		return out, true
	case s.in != nil && opens:
		out.Error = badf("the session is open already")
		return out, false
	case opens:
		opened, wrong := s.open(ctx, open.Open)
		out.Error, out.Op = wrong, &wire.Response_Open{Open: opened}
		return out, wrong != nil
	}
	switch op := r.GetOp().(type) {
	case *wire.Request_Step:
		if out.Error = s.checkStep(op.Step); out.Error == nil {
			out.Op = &wire.Response_Step{Step: s.step(ctx, op.Step)}
		}
	case *wire.Request_Stats:
		stats, wrong := s.stats(ctx)
		out.Error, out.Op = wrong, &wire.Response_Stats{Stats: stats}
	case *wire.Request_Events:
		events, wrong := s.events(ctx, op.Events)
		out.Error, out.Op = wrong, &wire.Response_Events{Events: events}
	case *wire.Request_Reset_:
		out.Error, out.Op = refusal(s.in.note(s.in.engine.Reset(ctx))),
			&wire.Response_Reset_{Reset_: &wire.ResetAnswer{}}
	case *wire.Request_Close:
		out.Op = &wire.Response_Close{Close: &wire.Closed{}}
		s.closed = true
		return out, true
	default:
		out.Error = badf("the request asks for nothing")
	}
	return out, s.in.broken.Load()
}

// open serves Open.
func (s *session) open(ctx context.Context, o *wire.Open) (*wire.Opened, *wire.Error) {
	if o.GetVersion() != wire.Version {
		return nil, errorf(codeVersion, "version %d of the wire is not served, version %d is",
			o.GetVersion(), wire.Version)
	}
	in, wrong := s.daemon.engines.acquire(ctx, o)
	if wrong != nil {
		s.daemon.config.Log.Warn("session refused", "client", brief(o.GetName()), "pid", s.peer.pid,
			"code", wrong.GetCode(), "error", brief(wrong.GetMessage()))
		return nil, wrong
	}
	s.in, s.name = in, o.GetName()
	s.daemon.register(s)
	s.daemon.config.Log.Info("session opened", "client", s.name, "pid", s.peer.pid, "engine",
		in.serial)
	return &wire.Opened{
		Version: wire.Version, Engine: in.name, Pid: uint32(os.Getpid()),
		Pools: in.describe, Groups: in.places,
		Limits: &wire.Limits{
			RequestBytes: uint32(s.daemon.config.RequestBytes), Handles: uint32(s.daemon.config.Handles),
			DeadlineMs: uint32(s.daemon.config.Deadline.Milliseconds()),
		},
		Key: []byte(s.attached.key),
	}, nil
}

// brief is the beginning of a text that a client has chosen, for the log.
func brief(text string) string {
	const most = 256
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

func (s *session) stats(ctx context.Context) (*wire.StatsAnswer, *wire.Error) {
	stats, err := s.in.engine.Stats(ctx)
	if err != nil {
		return nil, refusal(s.in.note(err))
	}
	text, err := json.Marshal(stats)
	if err != nil {
		return nil, refusal(err)
	}
	return &wire.StatsAnswer{Json: string(text), Sessions: uint32(s.daemon.engines.sessionsOf(s.in)),
		Handles: uint32(len(s.handles))}, nil
}

// events reads what has changed since the session's last call, without tokens.
func (s *session) events(
	ctx context.Context, r *wire.EventsRequest,
) (*wire.EventsAnswer, *wire.Error) {
	read := s.in.engine.Events
	if s.reader == 0 {
		var err error
		if s.reader, err = s.in.engine.OpenReader(ctx); err != nil {
			return nil, refusal(s.in.note(err))
		}
		read = s.in.engine.Snapshot
	}
	if r.GetSnapshot() {
		read = s.in.engine.Snapshot
	}
	batch, err := read(ctx, s.reader)
	if err != nil {
		return nil, refusal(s.in.note(err))
	}
	for i := range batch.Events {
		for b := range batch.Events[i].Blocks {
			batch.Events[i].Blocks[b].Tokens = nil
		}
	}
	text, err := json.Marshal(batch)
	if err != nil {
		return nil, refusal(err)
	}
	return &wire.EventsAnswer{Json: string(text), Lost: batch.Lost}, nil
}
