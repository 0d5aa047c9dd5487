package cross

import (
	"errors"

	"github.com/kvactor/kvactor/messages"
)

// committed commits the cross KV of sequences that had computed nothing before.
func (j *Join) committed(err error) {
	r := j.round.request.(*messages.Commit)
	if err != nil {
		j.abort(err)
		return
	}
	var first firsts
	for i := range r.Steps {
		s := &r.Steps[i]
		j.note(&first, &r.Results[i], s.Computed, s.After)
	}
	j.commitFirsts(&first, r.Results)
}

// appended does the same for what an append has committed.
func (j *Join) appended(err error) {
	r := j.round.request.(*messages.Append)
	if err != nil {
		j.abort(err)
		return
	}
	var first firsts
	for i := range r.Steps {
		s := &r.Steps[i]
		j.note(&first, &r.Results[i], s.Computed, s.After)
	}
	j.commitFirsts(&first, r.Results)
}

// firsts are the steps that were the first of their sequences to compute
// anything; nil in all rounds but a few.
type firsts struct {
	commit    *messages.Commit // of the cross side
	sequences []messages.SequenceID
}

// note adds a step that was accepted.
func (j *Join) note(f *firsts, result *messages.StepResult, computed int, after messages.Ticket) {
	if result.Err != nil {
		return
	}
	p := j.partnerOf(result.Sequence)
	if p.computed || computed <= p.reused {
		return
	}
	if f.commit == nil {
		f.commit = &messages.Commit{}
	}
	f.commit.Steps = append(f.commit.Steps, messages.CommitStep{Sequence: p.sequence, Computed: p.tokens, After: after, Continues: true})
	f.sequences = append(f.sequences, result.Sequence)
}

// commitFirsts answers when the cross KV of the first steps is committed. A
// sequence whose cross side is lost is told so.
func (j *Join) commitFirsts(f *firsts, results []messages.StepResult) {
	if f.commit == nil {
		j.reply()
		return
	}
	refusals := map[messages.SequenceID]error{}
	j.toEncoder(f.commit, served(func(j *Join) {
		for i, s := range f.sequences {
			if err := f.commit.Results[i].Err; err != nil {
				refusals[s] = err
				continue
			}
			p := j.partners[s]
			p.computed = true
			j.partners[s] = p
		}
		for i := range results {
			if err := refusals[results[i].Sequence]; err != nil && results[i].Err == nil {
				results[i].Err = err
			}
		}
		j.reply()
	}))
}

// released lets the cross side go of every sequence that has ended: also of
// those that were lost and have said so now.
func (j *Join) released(err error) {
	r := j.round.request.(*messages.Release)
	if err != nil {
		j.abort(err)
		return
	}
	j.release.Steps, j.retried = j.release.Steps[:0], false
	for i := range r.Steps {
		s := &r.Steps[i]
		if err := r.Results[i].Err; err != nil && !errors.Is(err, messages.ErrSequenceLost) {
			continue
		}
		if p, ok := j.partners[s.Sequence]; ok {
			delete(j.partners, s.Sequence)
			j.release.Steps = append(j.release.Steps, messages.ReleaseStep{Sequence: p.sequence, Discard: s.Discard, After: s.After})
		}
	}
	if len(j.release.Steps) == 0 {
		j.reply()
		return
	}
	j.toEncoder(&j.release, (*Join).crossReleased)
}

// crossReleased answers. A release that an actor's failure broke off is asked
// for once more: what was lost then ends.
func (j *Join) crossReleased(err error) {
	if err != nil && !j.retried {
		j.retried = true
		j.toEncoder(&j.release, (*Join).crossReleased)
		return
	}
	j.passed(err)
}

// tablesRead adds the cross table.
func (j *Join) tablesRead(err error) {
	r := j.round.request.(*messages.ReadTables)
	if err != nil {
		j.abort(err)
		return
	}
	if r.Err != nil {
		j.reply()
		return
	}
	own := &messages.ReadTables{Sequence: j.partnerOf(r.Sequence).sequence}
	j.toEncoder(own, served(func(j *Join) {
		if r.Err = own.Err; r.Err == nil {
			r.Tables = append(r.Tables, own.Tables...)
		}
		j.reply()
	}))
}
