package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// readStats copies the counters.
func (c *Coordinator) readStats(r *messages.ReadStats) {
	r.Err = nil
	pools := r.Stats.Pools[:0]
	r.Stats = c.stats
	r.Stats.Sequences = c.sequences.live
	for p := range c.Pools {
		s := c.stats.Pools[p]
		s.Primary, s.Secondary = c.pages[p].PageCounts, c.host[p]
		pools = append(pools, s)
	}
	r.Stats.Pools = pools
	c.reply()
}

// readEvents leaves the answer to the events actor.
func (c *Coordinator) readEvents(*messages.ReadEvents) {
	c.passOn(nil)
}

// readSnapshot asks the tree for its keys, then the events actor for the id
// that follows them.
func (c *Coordinator) readSnapshot() {
	c.snapshot = protocol.Snapshot{Header: protocol.Header{Epoch: c.epoch}}
	c.pending++
	c.next = (*Coordinator).snapshotted
	c.port.Tree(&c.snapshot)
}

func (c *Coordinator) snapshotted() {
	keys := c.snapshot.Events
	switch r := c.round.request.(type) {
	case *protocol.JoinSnapshot:
		keys = append(keys, r.Keys...)
	case *protocol.ReadKeys:
		r.Keys = keys
	}
	c.passOn(keys)
}

// readContents asks the tree for its blocks.
func (c *Coordinator) readContents(*messages.ReadContents) {
	c.contents = protocol.Contents{Header: protocol.Header{Epoch: c.epoch}}
	c.pending++
	c.next = (*Coordinator).contentsRead
	c.port.Tree(&c.contents)
}

func (c *Coordinator) contentsRead() {
	r := c.round.request.(*messages.ReadContents)
	r.Err, r.Blocks = nil, c.contents.Blocks
	c.reply()
}

// readSequences lists what runs.
func (c *Coordinator) readSequences(r *protocol.ReadSequences) {
	r.Err, r.Sequences = nil, r.Sequences[:0]
	c.sequences.each(func(s *sequence) { r.Sequences = append(r.Sequences, s.id) })
	c.reply()
}

// loseSequences gives up what another side has lost. It is done in one piece, and
// doing it again changes nothing.
func (c *Coordinator) loseSequences(r *protocol.LoseSequences) {
	r.Err = nil
	for _, id := range r.Sequences {
		s, refusal := c.sequences.find(id)
		if refusal != nil {
			continue
		}
		s.lost = true // its reserve stands for what it holds until it is released
	}
	c.reply()
}
