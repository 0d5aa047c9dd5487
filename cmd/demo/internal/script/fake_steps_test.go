package script

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

func (e *plain) Append(
	_ context.Context, steps []messages.AppendStep,
) ([]messages.StepResult, error) {
	var out []messages.StepResult
	for _, step := range steps {
		pages, err := e.grow(step)
		out = append(out, messages.StepResult{Sequence: step.Sequence, NewPages: pages, Err: err})
	}
	return out, nil
}

func (e *plain) grow(step messages.AppendStep) ([][]messages.PageID, error) {
	s, err := e.get(step.Sequence)
	if err != nil {
		return nil, err
	}
	if s.computed < len(s.request.Tokens) {
		return nil, refusals.New(messages.ErrBadRequest, "the prompt is not computed")
	}
	if (step.Beams != nil) != (len(s.beams) > 1) || step.Beams != nil &&
		len(step.Beams) != len(s.beams) {
		return nil, refusals.New(messages.ErrBadRequest, "%d beams", len(s.beams))
	}
	beams := make([][]messages.Token, len(s.beams))
	for i := range beams {
		beams[i] = append(slices.Clone(s.beams[i]), step.Tokens...)
		if step.Beams != nil {
			b := step.Beams[i]
			beams[i] = append(slices.Clone(s.beams[b.Parent]), b.Token)
		}
	}
	if len(beams[0]) > e.setup.Model.MaxSeqLen {
		panic("the script let a step pass that is too long")
	}
	e.call("append %d", step.Sequence)
	if step.Beams != nil {
		e.follow(s, step.Beams)
	}
	s.beams = beams
	return e.own(s)
}

// follow gives each beam the pages of its parent.
func (e *plain) follow(s *plainSequence, beams []messages.BeamStep) {
	for pool := range e.pools {
		next := make([][]messages.PageID, len(beams))
		for i, b := range beams {
			next[i] = slices.Clone(s.tables[pool][b.Parent])
			for _, page := range next[i] {
				e.refs[pool][page]++
			}
		}
		e.drop(pool, s.tables[pool])
		s.tables[pool] = next
	}
}

func (e *plain) drop(pool int, tables [][]messages.PageID) {
	for _, table := range tables {
		for _, page := range table {
			e.refs[pool][page]--
		}
	}
}

// own makes the pages of [computed, length) the sequence's own.
func (e *plain) own(s *plainSequence) ([][]messages.PageID, error) {
	out := make([][]messages.PageID, len(e.pools))
	blocks := (len(s.beams[0]) + e.tpb() - 1) / e.tpb()
	for pool := range e.pools {
		for beam := range s.beams {
			table := &s.tables[pool][beam]
			for block := s.computed / e.tpb(); block < blocks; block++ {
				if block < len(*table) && e.refs[pool][(*table)[block]] == 1 {
					continue
				}
				pages, err := e.take(pool, 1)
				if err != nil {
					return nil, err
				}
				if block < len(*table) {
					old := (*table)[block]
					e.copy(pool, old, pages[0])
					e.refs[pool][old]--
					(*table)[block] = pages[0]
				} else {
					*table = append(*table, pages[0])
				}
				out[pool] = append(out[pool], pages[0])
			}
		}
	}
	return out, nil
}

func (e *plain) copy(pool int, from, to messages.PageID) {
	if e.memory.lose > 0 {
		e.memory.lose--
		return
	}
	copy(e.memory.bytes(gpu.Slot{Pool: gpu.Pool(pool), Page: to}),
		e.memory.bytes(gpu.Slot{Pool: gpu.Pool(pool), Page: from}))
}

func (e *plain) RewindOne(_ context.Context, id messages.SequenceID, n int) error {
	s, err := e.get(id)
	if err != nil {
		return err
	}
	length := len(s.beams[0]) - n
	if length < len(s.request.Tokens) || len(s.beams) > 1 {
		return refusals.New(messages.ErrBadRequest, "rewind of %d tokens", n)
	}
	e.call("rewind %d %d", id, n)
	s.beams[0] = s.beams[0][:length:length]
	s.computed = min(s.computed, length)
	for pool := range e.pools {
		keep := (length + e.tpb() - 1) / e.tpb()
		e.drop(pool, [][]messages.PageID{s.tables[pool][0][keep:]})
		s.tables[pool][0] = s.tables[pool][0][:keep]
	}
	return nil
}

func (e *plain) Fork(_ context.Context, steps []messages.ForkStep) ([]messages.ForkResult, error) {
	ids, err := e.fork(steps[0].Sequence, steps[0].Count)
	return []messages.ForkResult{{Sequence: steps[0].Sequence, Forks: ids, Err: err}}, nil
}

func (e *plain) fork(id messages.SequenceID, n int) ([]messages.SequenceID, error) {
	s, err := e.get(id)
	if err != nil {
		return nil, err
	}
	if len(s.beams) > 1 {
		return nil, refusals.New(messages.ErrNotSupported, "fork and beams exclude each other")
	}
	e.call("fork %d %d", id, n)
	var out []messages.SequenceID
	for range n {
		f := &plainSequence{request: s.request, computed: s.computed,
			beams: [][]messages.Token{slices.Clone(s.beams[0])}}
		for pool := range e.pools {
			table := slices.Clone(s.tables[pool][0])
			for _, page := range table {
				e.refs[pool][page]++
			}
			f.tables = append(f.tables, [][]messages.PageID{table})
		}
		e.last++
		e.running[e.last] = f
		out = append(out, e.last)
	}
	return out, nil
}

func (e *plain) Release(
	_ context.Context, steps []messages.ReleaseStep,
) ([]messages.StepResult, error) {
	var out []messages.StepResult
	for _, step := range steps {
		s, err := e.get(step.Sequence)
		if e.lost[step.Sequence] { // the handle ends with this answer
			delete(e.lost, step.Sequence)
			delete(e.running, step.Sequence)
		}
		if err == nil {
			e.call("release %d discard=%t", step.Sequence, step.Discard)
			e.releasedAfter = append(e.releasedAfter, step.After)
			for pool := range e.pools {
				e.drop(pool, s.tables[pool])
			}
			delete(e.running, step.Sequence)
		}
		out = append(out, messages.StepResult{Sequence: step.Sequence, Err: err})
	}
	return out, nil
}

func (e *plain) TablesOf(_ context.Context, id messages.SequenceID) (messages.Tables, error) {
	s, err := e.get(id)
	if err != nil {
		return nil, err
	}
	return s.tables, nil
}
