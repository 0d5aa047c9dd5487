package cross

import (
	"errors"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// committing is the cross side of a commit on its way.
type committing struct {
	steps []int // of the request: the first of their sequences to compute anything
	cross messages.Commit
}

// committed commits the cross KV of sequences that had computed nothing before.
func (j *Join) committed(err error) {
	r := j.round.request.(*messages.Commit)
	if err != nil {
		j.abort(err)
		return
	}
	c := &j.committing
	*c = committing{}
	for i := range r.Steps {
		s := &r.Steps[i]
		if r.Results[i].Err != nil {
			continue
		}
		if p := j.partnerOf(s.Sequence); !p.computed && s.Computed > p.reused {
			c.steps = append(c.steps, i)
			c.cross.Steps = append(c.cross.Steps, messages.CommitStep{Sequence: p.sequence, Computed: p.tokens, After: s.After})
		}
	}
	if len(c.steps) == 0 {
		j.reply()
		return
	}
	j.insistEncoder(&c.cross, served((*Join).crossCommitted)) // to hear what was lost
}

// crossCommitted notes whose cross KV is committed.
func (j *Join) crossCommitted() {
	c := &j.committing
	r := j.round.request.(*messages.Commit)
	var lost []messages.SequenceID
	for k, i := range c.steps {
		result := &r.Results[i]
		if result.Err = named(c.cross.Results[k].Err, result.Sequence); result.Err != nil {
			lost = append(lost, result.Sequence)
			continue
		}
		p := j.partners[result.Sequence]
		p.computed = true
		j.partners[result.Sequence] = p
	}
	j.replyLosing(lost)
}

// named is the refusal of the cross side with the name that the host knows.
func named(refusal error, s messages.SequenceID) error {
	if errors.Is(refusal, messages.ErrSequenceLost) {
		return messages.Refuse(messages.SequenceLost, "sequence %v was lost with a failed actor", s)
	}
	return refusal
}

// replyLosing answers when the decoder's side has given up what the cross side
// has lost.
func (j *Join) replyLosing(lost []messages.SequenceID) {
	if len(lost) == 0 {
		j.reply()
		return
	}
	j.insistDecoder(&protocol.LoseSequences{Sequences: lost}, (*Join).passed)
}

// releasing is the cross side of a release on its way.
type releasing struct {
	steps []int // of the request
	cross messages.Release
}

// released lets the cross side go of every sequence that has ended: also of
// those that were lost and have said so now.
func (j *Join) released(err error) {
	r := j.round.request.(*messages.Release)
	if err != nil {
		j.abort(err)
		return
	}
	l := &j.releasing
	l.steps, l.cross.Steps = l.steps[:0], l.cross.Steps[:0]
	for i := range r.Steps {
		s := &r.Steps[i]
		if err := r.Results[i].Err; err != nil && !errors.Is(err, messages.ErrSequenceLost) {
			continue
		}
		if p, ok := j.partners[s.Sequence]; ok {
			l.steps = append(l.steps, i)
			l.cross.Steps = append(l.cross.Steps, messages.ReleaseStep{Sequence: p.sequence, Discard: s.Discard, After: s.After})
			delete(j.partners, s.Sequence)
		}
	}
	if len(l.steps) == 0 {
		j.reply()
		return
	}
	j.insistEncoder(&l.cross, served((*Join).crossReleased))
}

// crossReleased answers; a cross side that was lost has said so now.
func (j *Join) crossReleased() {
	l, r := &j.releasing, j.round.request.(*messages.Release)
	for k, i := range l.steps {
		if err := l.cross.Results[k].Err; errors.Is(err, messages.ErrSequenceLost) {
			r.Results[i].Err = named(err, r.Steps[i].Sequence)
		}
	}
	j.reply()
}

// tablesRead adds the cross tables.
func (j *Join) tablesRead(err error) {
	r := j.round.request.(*messages.ReadTables)
	if err != nil {
		j.abort(err)
		return
	}
	own, of := &messages.ReadTables{}, []int(nil)
	for i := range r.Results {
		if r.Results[i].Err == nil {
			own.Sequences, of = append(own.Sequences, j.partnerOf(r.Results[i].Sequence).sequence), append(of, i)
		}
	}
	if len(of) == 0 {
		j.reply()
		return
	}
	j.toEncoder(own, served(func(j *Join) {
		var lost []messages.SequenceID
		for k, i := range of {
			result := &r.Results[i]
			if result.Err = named(own.Results[k].Err, result.Sequence); result.Err != nil {
				result.Tables = nil
				lost = append(lost, result.Sequence)
				continue
			}
			result.Tables = append(result.Tables, own.Results[k].Tables...)
		}
		j.replyLosing(lost)
	}))
}
