package cross

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Port carries requests to the two sides. Each is answered once, through
// Answered, before the next is sent; callers are told as by a coordinator.
type Port interface {
	Decoder(request any)
	Encoder(request any)
	Begin(sender any) bool
	Reply(request, sender any)
	Abort(request, sender any, cause error)
}

// Join is the state of the actor that joins the two sides.
type Join struct {
	config   coordinator.Config // what both sides together accept
	pool     messages.PoolInfo  // the cross pool; its ID is the number of the others
	port     Port
	line     []queued
	round    queued
	complete bool               // the answer of the round is, it has only to be given
	next     func(*Join, error) // the stage after the answer
	asked    question           // what the answer is to
	serving  bool               // a stage is running: an answer that comes now waits for its end
	open     bool               // it has not come to what it does last, which a side or the caller does
	done     []error            // answers that came while one was running

	partners   map[messages.SequenceID]partner
	admitting  admitting
	committing committing
	forking    messages.Fork // of the cross side
	releasing  releasing

	restarts   int64
	recovering *recovering // nil: not at it
}

// partner is the cross side of one sequence of the decoder.
type partner struct {
	sequence messages.SequenceID
	tokens   int  // of the padded input
	reused   int  // decoder tokens that nobody had to compute
	computed bool // the cross KV has been committed
}

// question is a request to one side.
type question struct {
	request any
	encoder bool
	sent    bool
}

// queued is a request that waits, as the coordinator has them.
type queued struct{ request, sender any }

// New makes a join without sequences.
func New(config coordinator.Config, pool messages.PoolInfo, port Port) *Join {
	return &Join{config: config, pool: pool, port: port, partners: map[messages.SequenceID]partner{}}
}

// Queue puts a request into the line and leaves it there.
func (j *Join) Queue(request, sender any) { j.line = append(j.line, queued{request, sender}) }

// Submit queues a request and serves it if nothing else is under way.
func (j *Join) Submit(request, sender any) {
	j.Queue(request, sender)
	j.run()
}

// Answered goes on when a side has answered, or could not: err says why. It may
// be called before the Port's method that sent the request has returned.
func (j *Join) Answered(err error) {
	j.done = append(j.done, err)
	j.run()
}

// Stop answers everything that waits with the cause.
func (j *Join) Stop(cause error) {
	if j.round.request != nil {
		j.abort(cause)
	}
	for _, q := range j.line {
		j.port.Abort(q.request, q.sender, cause)
	}
	j.line, j.next, j.recovering = nil, nil, nil
}

// Hold keeps an answer that comes when the join has failed, until it goes on.
func (j *Join) Hold(err error) { j.done = append(j.done, err) }

// run serves until an answer is needed or nothing is left to do.
func (j *Join) run() {
	if j.serving {
		return
	}
	j.serving = true
	for j.step() {
	}
	j.serving = false
}

// step runs one stage; false if there is none to run.
func (j *Join) step() bool {
	if stage := j.next; stage != nil {
		if len(j.done) == 0 {
			return false
		}
		err := j.done[0]
		j.done, j.next = j.done[:0], nil
		j.open = true
		stage(j, err)
		j.open = false
		return true
	}
	j.done = j.done[:0] // an answer that comes twice is nobody's
	if len(j.line) == 0 {
		return false
	}
	j.round = j.line[0]
	j.line = slices.Delete(j.line, 0, 1)
	if !j.port.Begin(j.round.sender) {
		j.round = queued{}
		return true
	}
	j.open = true
	j.dispatch()
	j.open = false
	return true
}

// dispatch starts the first stage of the request.
func (j *Join) dispatch() {
	switch r := j.round.request.(type) {
	case *messages.Admit:
		j.admit(r)
	case *messages.Commit:
		j.toDecoder(r, (*Join).committed)
	case *messages.Release:
		j.toDecoder(r, (*Join).released)
	case *messages.Fork:
		j.toDecoder(r, (*Join).forked)
	case *messages.ReadTables:
		j.toDecoder(r, (*Join).tablesRead)
	case *protocol.DryRunAdmit:
		r.Err = messages.Refuse(messages.NotSupported, "an encoder-decoder model rehearses nothing")
		j.reply()
	default:
		j.dispatchStored(r)
	}
}

// dispatchStored starts requests about what is stored, or about the engine.
func (j *Join) dispatchStored(request any) {
	switch r := request.(type) {
	case *messages.Lookup:
		j.lookup(r)
	case *messages.PinPrefix:
		j.pin(r)
	case *messages.UnpinPrefix:
		j.unpin(r)
	case *messages.Prefetch:
		j.prefetch(r)
	case *messages.Invalidate:
		j.invalidate(r)
	case *messages.Reset:
		j.reset(r)
	case *messages.Rebalance:
		j.rebalance(r)
	case *messages.ReadStats:
		j.readStats(r)
	case *messages.ReadContents:
		j.readContents(r)
	case *messages.ReadEvents:
		j.readEvents(r)
	case *messages.OpenReader, *messages.CloseReader:
		j.toDecoder(r, (*Join).passed)
	case *messages.ReadSnapshot:
		j.readSnapshot(r)
	case *messages.Check:
		j.check(r)
	case *protocol.Close:
		j.close(r)
	default: // append, which no prompt sees that is not computed; rewind, scales
		j.toDecoder(r, (*Join).passed)
	}
}

// toDecoder and toEncoder send a request to one side; then is the stage after.
func (j *Join) toDecoder(request any, then func(*Join, error)) {
	j.next, j.asked, j.open = then, question{request: request}, false
	j.ask()
}

func (j *Join) toEncoder(request any, then func(*Join, error)) {
	j.next, j.asked, j.open = then, question{request: request, encoder: true}, false
	j.ask()
}

// insist is a stage that asks a side once more what its actors' failures broke off,
// until it is served: what one side has ended must end on the other. That a side has
// failed for good, or is closed, is said to the stage after, like more failures than
// are an accident.
func insist(request any, to func(*Join, any, func(*Join, error)), then func(*Join, error)) func(*Join, error) {
	attempts := 0
	var stage func(*Join, error)
	stage = func(j *Join, err error) {
		if attempts++; err == nil || attempts == maxAttempts || errors.Is(err, messages.ErrFailed) || errors.Is(err, messages.ErrClosed) {
			then(j, err)
			return
		}
		to(j, request, stage)
	}
	return stage
}

// insistDecoder and insistEncoder send such a request.
func (j *Join) insistDecoder(request any, then func(*Join, error)) {
	j.toDecoder(request, insist(request, (*Join).toDecoder, then))
}

func (j *Join) insistEncoder(request any, then func(*Join, error)) {
	j.toEncoder(request, insist(request, (*Join).toEncoder, then))
}

// ask sends the question.
func (j *Join) ask() {
	if j.asked.encoder {
		j.port.Encoder(j.asked.request)
	} else {
		j.port.Decoder(j.asked.request)
	}
	j.asked.sent = true
}

// both sends a request to each side, one after the other. If one could not be
// served, the round is aborted.
func (j *Join) both(decoder, encoder any, then func(*Join)) {
	j.toDecoder(decoder, func(j *Join, err error) {
		if err != nil {
			j.abort(err)
			return
		}
		j.toEncoder(encoder, served(then))
	})
}

// served is a stage that runs only if the request before it was served.
func served(then func(*Join)) func(*Join, error) {
	return func(j *Join, err error) {
		if err != nil {
			j.abort(err)
			return
		}
		then(j)
	}
}

// passed ends a round that one side has served alone.
func (j *Join) passed(err error) {
	if err != nil {
		j.abort(err)
		return
	}
	j.reply()
}

// reply ends the round. Until its caller has the answer it is the round: should
// giving it fail, it is given after the recovery.
func (j *Join) reply() {
	j.complete, j.open = true, false
	j.port.Reply(j.round.request, j.round.sender)
	j.round, j.complete = queued{}, false
}

// abort ends a round that could not be served.
func (j *Join) abort(cause error) {
	j.open = false
	j.port.Abort(j.round.request, j.round.sender, cause)
	j.round = queued{}
}

// partnerOf gives the cross side of a sequence that the decoder knows.
func (j *Join) partnerOf(s messages.SequenceID) partner {
	p, ok := j.partners[s]
	if !ok {
		panic(fmt.Sprintf("cross: sequence %v has no cross side", s))
	}
	return p
}

// Check verifies that no two sequences have the same cross side.
func (j *Join) Check() error {
	var problems []error
	owners := map[messages.SequenceID]messages.SequenceID{}
	for _, s := range slices.Sorted(maps.Keys(j.partners)) {
		p := j.partners[s]
		if other, taken := owners[p.sequence]; taken {
			problems = append(problems, fmt.Errorf("cross: sequences %v and %v have the same cross side %v", other, s, p.sequence))
		}
		owners[p.sequence] = s
	}
	return errors.Join(problems...)
}

// String draws the sequences with their cross sides.
func (j *Join) String() string {
	var w strings.Builder
	for _, s := range slices.Sorted(maps.Keys(j.partners)) {
		p := j.partners[s]
		fmt.Fprintf(&w, "%v cross %v of %d tokens", s, p.sequence, p.tokens)
		if p.computed {
			w.WriteString(" computed")
		}
		w.WriteByte('\n')
	}
	return w.String()
}
