package cross

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// recovering is the state of a recovery of the join itself, which broke off in
// the middle of a stage, on its way through
//
//	ask the decoder's side what runs → ask the cross side
//	→ lose what the round has stepped → release what has no partner
//	→ end the round → go on
//
// Which sequences belong together nobody but the join knows, and a change of it
// is one entry: pairs are never in doubt. What the failed round has made or ended
// on one side only has no partner. Both sides serve in order, so that the first
// answers come when the round's last request is through: only then its record is
// the caller's again.
type recovering struct {
	cause    error
	decoder  protocol.ReadSequences
	encoder  protocol.ReadSequences
	lost     protocol.LoseSequences
	own      messages.Release // of the decoder's side
	other    messages.Release // of the cross side
	attempts int
}

// maxAttempts is how often a side is asked that fails over it: more often than it
// meets with accidents at once.
const maxAttempts = 8

// Broken tells whether a panic now is one in the middle of a stage. Between two
// stages all is known, and Failed goes on where the join has stopped; else answers
// that are still to come are the port's to hold back.
func (j *Join) Broken() bool { return j.open }

// Failed goes on after a panic of the join. If a stage broke off, the round under
// way is aborted; what waits is served afterwards.
func (j *Join) Failed(cause error) {
	j.restarts++
	j.serving = false
	if j.open {
		j.recover(cause)
		return
	}
	switch {
	case j.complete:
		j.reply()
	case j.next != nil && !j.asked.sent:
		j.ask()
	case j.next == nil && j.round.request != nil: // it has not begun
		j.line, j.round = slices.Insert(j.line, 0, j.round), queued{}
	}
	j.run()
}

// recover begins a recovery.
func (j *Join) recover(cause error) {
	j.open, j.next, j.done = false, nil, nil
	j.recovering = &recovering{cause: cause}
	j.survey()
	j.run()
}

// survey asks both sides what runs.
func (j *Join) survey() {
	r := j.recovering
	j.toDecoder(&r.decoder, j.then(func(j *Join) {
		j.toEncoder(&r.encoder, j.then((*Join).surveyed))
	}))
}

// then is a stage of the recovery, which begins anew if a side could not serve.
func (j *Join) then(stage func(*Join)) func(*Join, error) {
	return func(j *Join, err error) {
		r := j.recovering
		switch {
		case err == nil:
			stage(j)
		case r.attempts == maxAttempts:
			j.recovered()
		default:
			fresh := &recovering{cause: r.cause, attempts: r.attempts + 1}
			j.recovering = fresh
			j.survey()
		}
	}
}

// surveyed finds what has no partner.
func (j *Join) surveyed() {
	r := j.recovering
	known := j.lastReleases()
	j.settle()
	joined := map[messages.SequenceID]bool{}
	for s, p := range j.partners {
		if slices.Contains(r.decoder.Sequences, s) {
			joined[p.sequence] = true
		} else {
			delete(j.partners, s)
		}
	}
	for _, s := range r.decoder.Sequences {
		if _, ok := j.partners[s]; !ok {
			r.own.Steps = append(r.own.Steps, messages.ReleaseStep{Sequence: s, Discard: true})
		}
	}
	for _, s := range r.encoder.Sequences {
		if joined[s] {
			continue
		}
		step, ok := known[s]
		if !ok {
			step = messages.ReleaseStep{Sequence: s, Discard: true}
		}
		r.other.Steps = append(r.other.Steps, step)
	}
	j.toDecoder(&r.lost, j.then(func(j *Join) {
		j.toDecoder(&r.own, j.then(func(j *Join) {
			j.toEncoder(&r.other, j.then((*Join).recovered))
		}))
	}))
}

// settle says what becomes of the round that failed, whose last request to a side
// is through. A release is answered if the decoder's side has served it: that
// cannot be undone. What others have stepped is lost, since nobody knows how far.
func (j *Join) settle() {
	r := j.recovering
	switch m := j.round.request.(type) {
	case *messages.Release:
		j.complete = !slices.ContainsFunc(m.Steps, func(s messages.ReleaseStep) bool {
			_, joined := j.partners[s.Sequence]
			return joined && slices.Contains(r.decoder.Sequences, s.Sequence)
		})
	case *messages.Commit:
		for i := range m.Steps {
			r.lost.Sequences = append(r.lost.Sequences, m.Steps[i].Sequence)
		}
	case *messages.Append:
		for i := range m.Steps {
			r.lost.Sequences = append(r.lost.Sequences, m.Steps[i].Sequence)
		}
	case *messages.Rewind:
		for i := range m.Steps {
			r.lost.Sequences = append(r.lost.Sequences, m.Steps[i].Sequence)
		}
	}
}

// lastReleases are, by sequence of the cross side, the steps that a release under
// way asks for: kernels of the host may still use the pages.
func (j *Join) lastReleases() map[messages.SequenceID]messages.ReleaseStep {
	known := map[messages.SequenceID]messages.ReleaseStep{}
	r, ok := j.round.request.(*messages.Release)
	if !ok {
		return known
	}
	for _, s := range j.releasing.cross.Steps {
		known[s.Sequence] = s
	}
	for _, s := range r.Steps {
		if p, ok := j.partners[s.Sequence]; ok {
			s.Sequence = p.sequence
			known[p.sequence] = s
		}
	}
	return known
}

// recovered answers the round that failed and goes on with what waits.
func (j *Join) recovered() {
	cause := j.recovering.cause
	j.recovering = nil
	switch {
	case j.round.request == nil:
	case j.complete:
		j.reply()
	default:
		j.abort(cause)
	}
}
