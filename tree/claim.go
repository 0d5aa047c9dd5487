package tree

import "github.com/kvactor/kvactor/internal/protocol"

// claim marks what a sequence reuses as used now. It leaves out blocks that are not
// there any more or that no pool holds: the sequence may claim blocks that its
// windows have passed.
func (t *storer) claim(c *protocol.ClaimItem) {
	stamp := t.arena.nextStamp()
	t.retention.read(c.Retention, c.Prompt, t.arena.tpb)
	for i, b := range c.Blocks {
		// The id may have been freed and given to a block of another depth.
		if !t.arena.alive(b) || t.arena.blocks[b].depth != int32(i) || !t.arena.held(b) {
			continue
		}
		t.arena.touch(b, stamp)
		t.arena.shareSession(b, c.Session)
		if term, ok := t.retention.of(int32(i)); ok {
			t.setRetention(b, term)
		}
	}
	// The source is reused in part, so it gets neither session nor retention of the
	// request: both are for blocks that the sequence has whole.
	if c.Source != protocol.NoBlock && t.arena.alive(c.Source) && t.arena.held(c.Source) {
		t.arena.touch(c.Source, stamp)
	}
}

// touch gives a block that some pool holds a new stamp.
func (t *arena) touch(b protocol.BlockID, stamp uint64) {
	t.blocks[b].stamp = stamp
	t.refresh(b)
}
