package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// rewind drops the last tokens of a sequence.
func (c *Coordinator) rewind(r *messages.Rewind) {
	r.Err = nil
	s, refusal := c.sequences.find(r.Sequence)
	if refusal == nil {
		refusal = c.validateRewind(s, r.Tokens)
	}
	if refusal != nil {
		r.Err = refusal
		c.reply()
		return
	}
	length := s.length() - r.Tokens
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
	c.resetWork()
	c.resetMove()
	for p := range s.pools {
		table := s.pools[p].tables[0]
		c.markRead(s, p, table[blocks:])
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: table[blocks:], Use: s.use})
		s.pools[p].tables[0] = table[:blocks]
		s.pools[p].kept = min(s.pools[p].kept, blocks)
	}
	c.settled = true
	c.after = (*Coordinator).reply
	c.sendEffects()
}

func (c *Coordinator) validateRewind(s *sequence, n int) *messages.Refusal {
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

// fork makes new sequences that share all pages of one.
func (c *Coordinator) fork(r *messages.Fork) {
	r.Err, r.Sequences = nil, r.Sequences[:0]
	s, refusal := c.sequences.find(r.Sequence)
	switch {
	case refusal != nil:
	case r.Count < 1 || r.Count > MaxForks:
		refusal = messages.Refuse(messages.BadRequest, "fork into %d sequences: 1 … %d are allowed", r.Count, MaxForks)
	case s.beams() > 1:
		refusal = messages.Refuse(messages.NotSupported, "fork and beam_width above 1 exclude each other")
	case s.computed < s.prompt:
		refusal = messages.Refuse(messages.BadRequest, "fork of a prompt of %d tokens of which %d are computed", s.prompt, s.computed)
	}
	if refusal != nil {
		r.Err = refusal
		c.reply()
		return
	}
	s.stepped = c.stamp
	c.resetWork()
	for range r.Count {
		r.Sequences = append(r.Sequences, c.forkOne(s))
	}
	for p := range s.pools {
		for range r.Count {
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: s.pools[p].tables[0]})
		}
	}
	s.sealed, s.forked = len(s.pools[0].tables[0]), true
	c.settled = true
	c.sendPools((*Coordinator).pooledReply)
}

// MaxForks bounds the sequences that one fork makes.
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

// readTables copies the page tables of a sequence.
func (c *Coordinator) readTables(r *messages.ReadTables) {
	r.Err = nil
	s, refusal := c.sequences.find(r.Sequence)
	if refusal != nil {
		r.Err = refusal
	} else {
		r.Tables = s.copyTables(r.Tables)
	}
	c.reply()
}
