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
	var first []int // steps that were the first of their sequences to compute anything
	var own messages.Commit
	for i := range r.Steps {
		s := &r.Steps[i]
		if r.Results[i].Err != nil {
			continue
		}
		if p := j.partnerOf(s.Sequence); !p.computed && s.Computed > p.reused {
			first = append(first, i)
			own.Steps = append(own.Steps, messages.CommitStep{Sequence: p.sequence, Computed: p.tokens, After: s.After, Continues: true})
		}
	}
	if len(first) == 0 {
		j.reply()
		return
	}
	j.toEncoder(&own, served(func(j *Join) {
		for k, i := range first {
			j.settleCommit(&r.Results[i], own.Results[k].Err)
		}
		j.reply()
	}))
}

// settleCommit notes that the cross KV of a sequence is committed. One whose
// cross side is lost is told so.
func (j *Join) settleCommit(result *messages.StepResult, err error) {
	if err != nil {
		result.Err = err
		return
	}
	p := j.partners[result.Sequence]
	p.computed = true
	j.partners[result.Sequence] = p
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
			j.release.Steps = append(j.release.Steps, messages.ReleaseStep{Sequence: p.sequence, Discard: s.Discard, After: s.After})
			delete(j.partners, s.Sequence)
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
