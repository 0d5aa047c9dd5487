package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// process is an engine in a process of its own. Windows and replies are lines of JSON on
// its standard input and output; events come over HTTP from its loopback interface.
//
//	NewProcess ── Settings ──▶ Serve
//	           ◀── started ───
//	run        ── Window ────▶
//	           ◀── Reply ─────
//	stream     ◀── events ──── GET /events
type process struct {
	*stream
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	encode  *json.Encoder
	ended   bool
}

// started is the first line that an engine's process writes.
type started struct {
	Events string `json:"events"` // URL
	Error  string `json:"error,omitempty"`
}

// NewProcess starts an engine in a process. The command runs Serve; it is killed when the
// context ends.
func NewProcess(ctx context.Context, s Settings, command *exec.Cmd) (_ Engine, err error) {
	p := &process{command: command}
	if p.in, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out, p.encode = json.NewDecoder(out), json.NewEncoder(p.in)
	if err := command.Start(); err != nil {
		return nil, err
	}
	var first started
	err = p.encode.Encode(s)
	if err == nil {
		err = p.out.Decode(&first)
	}
	if err == nil && first.Error != "" {
		err = errors.New(first.Error)
	}
	if err == nil {
		p.stream, err = openStream(ctx, first.Events)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) run(ctx context.Context, w Window) (Reply, error) {
	var r Reply
	err := p.encode.Encode(w)
	if err == nil {
		err = p.out.Decode(&r)
	}
	switch {
	case err != nil && ctx.Err() != nil: // the process was ended with the run
		return r, ctx.Err()
	case err != nil:
		return r, fmt.Errorf("the process does not answer: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	if !w.Finish {
		return r, nil
	}
	p.ended = true
	p.close()
	return r, errors.Join(p.in.Close(), p.command.Wait())
}

func (p *process) follow(ctx context.Context, r *Reply) error { return p.reach(ctx, r.Next) }

// kill sends the process a window and SIGKILL behind it. What it has answered by then is
// not read: it could as well have been lost on its way.
func (p *process) kill(_ context.Context, w Window) error {
	if p.ended {
		return nil
	}
	p.ended = true
	_ = p.encode.Encode(w) // the process may have ended already
	err := p.stop()
	p.close()
	return err
}

// stop kills the process and waits for its end.
func (p *process) stop() error {
	err := p.command.Process.Kill()
	var killed *exec.ExitError
	if wait := p.command.Wait(); wait != nil && !errors.As(wait, &killed) {
		err = errors.Join(err, wait)
	}
	return err
}
