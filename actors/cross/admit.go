package cross

import (
	"cmp"
	"errors"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// admitting is a batch of admissions on its way through
//
//	validate → rehearse on the cross side → admit on the decoder's
//	→ admit on the cross side → answer
//
// Those that are refused on the way drop out.
type admitting struct {
	items   []item
	decoder messages.Admit
	encoder messages.Admit
	undo    messages.Release // of the decoder's side, when the cross side failed
	broken  error            // why the cross side could not serve
}

// item is one request that has not been refused yet.
type item struct {
	at    int // index in the batch
	input input
}

// admit starts a batch.
func (j *Join) admit(r *messages.Admit) {
	r.Err = nil
	r.Results = make([]messages.Admitted, len(r.Requests))
	a := &j.admitting
	*a = admitting{}
	rehearsal := &protocol.DryRunAdmit{}
	for i := range r.Requests {
		request := &r.Requests[i]
		err := j.config.Validate(request)
		if err == nil {
			err = j.config.ValidateEncoderLength(len(request.Encoder))
		}
		if err != nil {
			r.Results[i].Err = err
			continue
		}
		it := item{at: i, input: j.inputOf(request.Namespace, request.Encoder, request.EncoderItems)}
		a.items = append(a.items, it)
		rehearsal.Requests = append(rehearsal.Requests, it.admission(request))
	}
	if len(a.items) == 0 {
		j.reply()
		return
	}
	j.toEncoder(rehearsal, served(func(j *Join) { j.rehearsed(r, rehearsal) }))
}

// admission is what the cross side admits: the items that cover encoder tokens
// are in the namespace already.
func (it *item) admission(r *messages.AdmitRequest) messages.AdmitRequest {
	return messages.AdmitRequest{
		Namespace: it.input.namespace, Tokens: it.input.tokens, Retention: r.EncoderRetention, Session: r.Session,
	}
}

// rehearsed admits on the decoder's side what the cross side has room for.
func (j *Join) rehearsed(r *messages.Admit, rehearsal *protocol.DryRunAdmit) {
	a := &j.admitting
	kept := a.items[:0]
	for k, it := range a.items {
		if err := rehearsal.Results[k].Err; err != nil {
			r.Results[it.at].Err = err
			continue
		}
		kept = append(kept, it)
		own := r.Requests[it.at]
		own.Namespace = it.input.namespace
		own.Encoder, own.EncoderItems, own.EncoderRetention = nil, nil, nil
		a.decoder.Requests = append(a.decoder.Requests, own)
	}
	a.items = kept
	if len(kept) == 0 {
		j.reply()
		return
	}
	j.toDecoder(&a.decoder, served(func(j *Join) { j.decoded(r) }))
}

// decoded admits on the cross side what the decoder's side has admitted.
func (j *Join) decoded(r *messages.Admit) {
	a := &j.admitting
	kept := a.items[:0]
	for k, it := range a.items {
		r.Results[it.at] = a.decoder.Results[k]
		if r.Results[it.at].Err == nil {
			kept = append(kept, it)
			a.encoder.Requests = append(a.encoder.Requests, it.admission(&r.Requests[it.at]))
		}
	}
	a.items = kept
	if len(kept) == 0 {
		j.reply()
		return
	}
	j.toEncoder(&a.encoder, (*Join).encoded)
}

// encoded joins what both sides have admitted. What the cross side could not
// do after all, because something failed, the decoder's side lets go again.
func (j *Join) encoded(err error) {
	r := j.round.request.(*messages.Admit)
	a := &j.admitting
	a.broken = err
	for k, it := range a.items {
		result := &r.Results[it.at]
		if err == nil && a.encoder.Results[k].Err == nil {
			j.pair(result, &a.encoder.Results[k], it.input)
			continue
		}
		a.undo.Steps = append(a.undo.Steps, messages.ReleaseStep{Sequence: result.Sequence, Discard: true})
		*result = messages.Admitted{}
		if err == nil {
			result.Err = a.encoder.Results[k].Err
		}
	}
	if len(a.undo.Steps) == 0 {
		j.reply()
		return
	}
	j.insistDecoder(&a.undo, func(j *Join, err error) { j.passed(cmp.Or(a.broken, err)) })
}

// pair makes a cross admission the cross side of a sequence.
func (j *Join) pair(result, encoder *messages.Admitted, in input) {
	j.partners[result.Sequence] = partner{
		sequence: encoder.Sequence, tokens: len(in.tokens), reused: result.ReusedTokens,
		computed: encoder.ReusedTokens == len(in.tokens),
	}
	table := encoder.Tables[0][0]
	result.Cross = &messages.CrossAdmitted{ReusedTokens: min(encoder.ReusedTokens, in.length), Table: table, Ready: encoder.Ready}
	result.Tables = append(result.Tables, [][]messages.PageID{table})
	result.Reuse = append(result.Reuse, encoder.Reuse...)
}

// forked forks the cross side too; forks take no pages.
func (j *Join) forked(err error) {
	r := j.round.request.(*messages.Fork)
	if err != nil {
		j.abort(err)
		return
	}
	j.forking = messages.Fork{}
	for i := range r.Results {
		if r.Results[i].Err == nil {
			p := j.partnerOf(r.Results[i].Sequence)
			j.forking.Steps = append(j.forking.Steps, messages.ForkStep{Sequence: p.sequence, Count: r.Steps[i].Count})
		}
	}
	if len(j.forking.Steps) == 0 {
		j.reply()
		return
	}
	j.insistEncoder(&j.forking, (*Join).crossForked) // to hear whether it was lost
}

// crossForked joins the forks, and releases those of the decoder's side that the
// cross side refused or could not serve.
func (j *Join) crossForked(broken error) {
	r, next := j.round.request.(*messages.Fork), 0
	undo, lost := &messages.Release{}, []messages.SequenceID(nil)
	for i := range r.Results {
		result := &r.Results[i]
		if result.Err != nil {
			continue
		}
		var own messages.ForkResult
		if broken == nil {
			own = j.forking.Results[next]
			next++
		}
		if broken == nil && own.Err == nil {
			p := j.partnerOf(result.Sequence)
			for k, s := range result.Forks {
				p.sequence = own.Forks[k]
				j.partners[s] = p
			}
			continue
		}
		for _, s := range result.Forks {
			undo.Steps = append(undo.Steps, messages.ReleaseStep{Sequence: s, Discard: true})
		}
		result.Forks, result.Err = nil, named(own.Err, result.Sequence)
		if errors.Is(result.Err, messages.ErrSequenceLost) {
			lost = append(lost, result.Sequence)
		}
	}
	if len(undo.Steps) == 0 {
		j.reply()
		return
	}
	j.insistDecoder(undo, func(j *Join, err error) {
		if err = cmp.Or(broken, err); err != nil {
			j.abort(err)
			return
		}
		j.replyLosing(lost)
	})
}
