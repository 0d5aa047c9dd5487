package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// rewind drops the last tokens of sequences. The pools hear of all of them in one
// message each.
func (c *Coordinator) rewind(r *messages.Rewind) {
	r.Err, r.Results = nil, c.results(r.Results, len(r.Steps))
	c.resetWork()
	c.resetMove()
	served := false
	for i := range r.Steps {
		step, result := &r.Steps[i], &r.Results[i]
		result.Sequence = step.Sequence
		s, err := c.findStep(step.Sequence)
		if err == nil {
			err = c.validateRewind(s, step.Tokens)
		}
		if result.Err = err; err == nil {
			c.rewindOne(s, s.length()-step.Tokens)
			served = true
		}
	}
	if !served {
		c.reply()
		return
	}
	c.settled = true
	c.after = (*Coordinator).reply
	c.sendEffects()
}

// rewindOne drops the tokens of a sequence from length on.
func (c *Coordinator) rewindOne(s *sequence, length int) {
	blocks := ceilDiv(length, c.TokensPerBlock)
	s.use, s.stepped = c.nextUse(), c.stamp
	whole := length / c.TokensPerBlock
	if s.retention != nil && s.anew > whole {
		s.settled = s.settled.with(s.tokens[0][:s.anew*c.TokensPerBlock])
	}
	s.tokens[0] = s.tokens[0][:length]
	s.computed = min(s.computed, length)
	if s.anew > whole || s.sealed > whole {
		// The last stored block is no longer the sequence's.
		s.cursor = protocol.Cursor{}
		s.anew = min(s.anew, whole)
	}
	s.sealed = min(s.sealed, blocks)
	for p := range s.pools {
		table := s.pools[p].tables[0]
		c.markRead(s, p, table[blocks:])
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: table[blocks:], Use: s.use})
		s.pools[p].tables[0] = table[:blocks]
		s.pools[p].kept = min(s.pools[p].kept, blocks)
	}
}

func (c *Coordinator) validateRewind(s *sequence, n int) error {
	generated := s.length() - s.prompt
	switch {
	case n < 1:
		return messages.Refuse(messages.BadRequest, "rewind of %d tokens", n)
	case s.beams() > 1:
		return messages.Refuse(messages.NotSupported, "rewind and beam_width above 1 exclude each other")
	case n > generated:
		return messages.Refuse(messages.BadRequest, "rewind of %d tokens: %d are generated", n, generated)
	}
	next := min(s.computed, s.length()-n)
	for p := range s.pools {
		pool := &c.Pools[p]
		dropped := min(s.pools[p].kept, ceilDiv(next, c.TokensPerBlock)) // of those before the next token
		if !pool.Full() && max(pool.FirstNeeded(next), pool.SinkBlocks()) < dropped {
			return messages.Refuse(messages.NotSupported,
				"rewind to %d tokens and the window of pool %s exclude each other: block %d has been dropped", s.length()-n, pool.Name, dropped-1)
		}
	}
	return nil
}

// pooledReply answers after the pools have.
func (c *Coordinator) pooledReply() {
	c.pooled()
	c.reply()
}

// fork makes new sequences that share all pages of others.
func (c *Coordinator) fork(r *messages.Fork) {
	for len(r.Results) < len(r.Steps) {
		r.Results = append(r.Results, messages.ForkResult{})
	}
	r.Err, r.Results = nil, r.Results[:len(r.Steps)]
	c.resetWork()
	made := 0
	for i := range r.Steps {
		step, result := &r.Steps[i], &r.Results[i]
		*result = messages.ForkResult{Sequence: step.Sequence, Forks: result.Forks[:0]}
		s, err := c.findStep(step.Sequence)
		if err == nil {
			err = c.validateFork(s, step.Count, made)
		}
		if result.Err = err; err != nil {
			continue
		}
		made += step.Count
		s.stepped = c.stamp
		for range step.Count {
			result.Forks = append(result.Forks, c.forkOne(s))
			for p := range s.pools {
				c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: s.pools[p].tables[0]})
			}
		}
		s.sealed, s.forked = len(s.pools[0].tables[0]), true
	}
	if made == 0 {
		c.reply()
		return
	}
	c.settled = true
	c.sendPools((*Coordinator).pooledReply)
}

// validateFork checks a fork into n sequences, after others of the same request
// have made some.
func (c *Coordinator) validateFork(s *sequence, n, made int) error {
	switch {
	case n < 1 || n > MaxForks-made:
		return messages.Refuse(messages.BadRequest, "fork into %d sequences: 1 … %d are allowed", n, MaxForks-made)
	case s.beams() > 1:
		return messages.Refuse(messages.NotSupported, "fork and beam_width above 1 exclude each other")
	case s.computed < s.prompt:
		return messages.Refuse(messages.BadRequest, "fork of a prompt of %d tokens of which %d are computed", s.prompt, s.computed)
	}
	return nil
}

// MaxForks bounds the sequences that one Fork makes, all its steps together.
const MaxForks = 1 << 16

// forkOne copies a sequence.
func (c *Coordinator) forkOne(s *sequence) messages.SequenceID {
	f := c.openSequence()
	f.mute, f.namespace, f.session, f.retention = s.mute, s.namespace, s.session, s.retention
	f.tenant = s.tenant
	f.tokens[0] = append(f.tokens[0], s.tokens[0]...)
	f.prompt, f.computed, f.anew, f.settled, f.cursor, f.own = s.prompt, s.computed, s.anew, s.settled, s.cursor, s.own
	f.chunkEnd = s.chunkEnd
	f.sealed, f.forked = len(s.pools[0].tables[0]), true
	f.use = c.nextUse()
	if s.symbols != nil {
		f.symbols = s.symbols
		*f.symbols++
	}
	for p := range s.pools {
		f.pools[p].tables[0] = append(f.pools[p].tables[0], s.pools[p].tables[0]...)
		f.pools[p].kept = s.pools[p].kept
	}
	return f.id
}

// readTables copies the page tables of sequences.
func (c *Coordinator) readTables(r *messages.ReadTables) {
	for len(r.Results) < len(r.Sequences) {
		r.Results = append(r.Results, messages.TablesResult{})
	}
	r.Err, r.Results = nil, r.Results[:len(r.Sequences)]
	for i, id := range r.Sequences {
		result := &r.Results[i]
		result.Sequence, result.Err = id, nil
		s, refusal := c.sequences.find(id)
		if refusal != nil {
			result.Err = refusal
			continue
		}
		result.Tables = s.copyTables(result.Tables)
	}
	c.reply()
}
