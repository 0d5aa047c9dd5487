package script

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// maxLine bounds a line of input; a longer one is passed over and refused.
const maxLine = 64 << 20 // bytes

// Run reads requests from in, one a line, and writes one answer for each to
// out before it reads the next. It ends with the input: an engine that is open
// then is closed. The error is one of reading or writing; what is wrong with a
// request is said in its answer.
func Run(in io.Reader, out io.Writer, open OpenFunc) error {
	c := &conversation{ctx: context.Background(), open: open}
	lines, answers := bufio.NewReader(in), bufio.NewWriter(out)
	for {
		line, err := readLine(lines)
		if len(bytes.TrimSpace(line)) > 0 && line[0] != '#' {
			if err := writeLine(answers, c.answer(line)); err != nil {
				return errors.Join(err, c.shut())
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, c.shut())
		}
	}
}

// readLine gives the next line, without its end; at the end of the input
// together with io.EOF. Of a line over maxLine it gives the first maxLine+1
// bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLine + 1 - len(line); room < len(part) {
			part = part[:room]
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

func writeLine(w *bufio.Writer, answer any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return err
	}
	return w.Flush()
}

// conversation is the state between two lines: an engine, if one is open, and
// what this package as its host remembers of sequences and pins.
type conversation struct {
	ctx  context.Context // one, from start to end
	open OpenFunc

	host   *player // nil: no engine is open
	stores map[string]*stores.Memory
}

// answer answers one line.
func (c *conversation) answer(line []byte) any {
	if len(line) > maxLine {
		return failed("", refusals.New(messages.ErrBadRequest, "the line is longer than %d bytes",
			maxLine))
	}
	value, err := parse(line)
	if err != nil {
		return failed("", refusals.New(messages.ErrBadRequest, "%v", err))
	}
	r := &reader{op: "request"}
	var head struct {
		Op string `json:"op"`
	}
	fields := r.object("", value)
	r.fill("", fields, reflect.ValueOf(&head).Elem())
	if r.err != nil {
		return failed("", r.err)
	}
	op := head.Op
	known, ok := ops[op]
	if !ok {
		return failed(op, refusals.New(messages.ErrBadRequest, "unknown op %q", op))
	}
	r.op = op
	q := reflect.New(reflect.TypeOf(known).Elem())
	r.fill("", fields, q.Elem())
	r.end("", fields)
	if r.err != nil {
		return failed(op, r.err)
	}
	a, err := c.do(op, q.Interface())
	c.waitForStore()
	if err != nil {
		return failed(op, err)
	}
	return a
}

// ops are the requests by their names: what is read of a line of the right shape. Each does what it
// asks for, and its error is a refusal that has changed nothing.
var ops = map[string]any{
	"open":        &openRequest{},
	"close":       &closeRequest{},
	"admit":       &admitRequest{},
	"admit_batch": &admitBatchRequest{},
	"commit":      &commitRequest{},
	"append":      &appendRequest{},
	"rewind":      &rewindRequest{},
	"fork":        &forkRequest{},
	"release":     &releaseRequest{},
	"tables":      &tablesRequest{},
	"lookup":      &lookupRequest{},
	"pin":         &pinRequest{},
	"unpin":       &unpinRequest{},
	"invalidate":  &invalidateRequest{},
	"prefetch":    &prefetchRequest{},
	"reset":       &resetRequest{},
	"weights":     &weightsRequest{},
	"advance":     &advanceRequest{},
	"rebalance":   &rebalanceRequest{},
	"stats":       &statsRequest{},
	"events":      &eventsRequest{},
	"verify":      &verifyRequest{},
	"fault":       &faultRequest{},
	"flush":       &flushRequest{},
	"fetch":       &fetchRequest{},
}

// do does a request. All but open and close need an open engine.
func (c *conversation) do(op string, q any) (any, error) {
	switch q := q.(type) {
	case *openRequest:
		return c.start(q)
	case *closeRequest:
		leaked, err := c.stop()
		return closeAnswer{done("close"), leaked}, err
	}
	if c.host == nil {
		return nil, refusals.New(codeNotOpen, "%s: no engine is open", op)
	}
	return q.(interface{ do(*player) (any, error) }).do(c.host)
}

type closeRequest struct{}

// start opens an engine.
func (c *conversation) start(q *openRequest) (any, error) {
	if c.host != nil {
		return nil, refusals.New(codeAlreadyOpen, "open: an engine is open already")
	}
	setup, err := q.setup()
	if err != nil {
		return nil, err
	}
	setup.Clock = &Clock{}
	if setup.Store != nil {
		setup.Store.Memory = c.memory(q.Store.Name)
	}
	rig, err := c.open(setup)
	if err != nil {
		return nil, err
	}
	c.host = newPlayer(c.ctx, rig, setup)
	return poolsAnswer{done("open"), poolAnswers(rig.Engine.Pools())}, nil
}

// stop closes the engine, if one is open, and then its device. Whatever the
// answer, nothing is open afterwards.
func (c *conversation) stop() (leaked int, err error) {
	if c.host == nil {
		return 0, nil
	}
	rig, memory := c.host.rig, c.host.memory
	c.host = nil
	rig.Drain()
	leaked, err = rig.Engine.Close(c.ctx)
	if memory != nil {
		memory.Fail(0)
	}
	return leaked, errors.Join(err, rig.Close())
}

// shut ends a conversation whose input has ended.
func (c *conversation) shut() error {
	if _, err := c.stop(); err != nil {
		return fmt.Errorf("closing the engine: %w", err)
	}
	return nil
}
