package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Recurrent layers in a batch of prompts. A prompt takes one page in each state pool,
// its working page. If it reuses anything, the match ends at a block that has a
// checkpoint in every state pool, and the checkpoint is copied into the working page.
// So a checkpoint is handled like the source of a partial copy:
//
//	Inspect ─▶ Claim of the checkpoint ─▶ Take of the working page ─▶ Drop of the checkpoint
//	           it cannot be a victim      never the checkpoint itself   it can, from now on
//
// A checkpoint in host memory is no page that could be a victim. It is copied straight
// into the working page and stays where it is. Without reuse the working page is filled
// with zeros, which is the state before the first token.
//
// The stages of a lookup are the same. A prefetch and a pin differ: they hold the checkpoint as
// they hold whole blocks, see found.

// promptStates is what a batch keeps of a prompt of a model with recurrent layers, beside its
// plans.
type promptStates struct {
	// attention is the number of tokens that would be reused if no state were needed, as
	// the first match of the prompt has found it.
	attention int
	// noCheckpoint: the copy of a checkpoint has failed, so the prompt goes without.
	noCheckpoint bool
	// checkpoint is that of the match, as a list, for found.
	checkpoint [1]protocol.BlockID
	// probes ask who holds the block that attention ends inside: by pool, the index of the
	// operation, −1: none. Nil: nothing was asked.
	probes []int
}

// checkpoint is the block whose checkpoint prompt i reuses; NoBlock if there is none. It is
// that of the last match of the prompt, which may be one with less.
func (b *promptBatch) checkpoint(i int) protocol.BlockID {
	if b.states.empty() || b.items[i].self < 0 {
		return protocol.NoBlock
	}
	return b.match.Items[b.items[i].self].Checkpoint
}

// copiesCheckpoint tells whether prompt i copies a checkpoint into its working pages.
func (b *promptBatch) copiesCheckpoint(i int) bool {
	return !b.storedOnly && b.checkpoint(i) != protocol.NoBlock
}

// copiesInto tells whether prompt i takes a page of a pool to copy into: a part of a block, or a
// checkpoint.
func (b *promptBatch) copiesInto(i, p int) bool {
	if b.states.has(p) {
		return b.copiesCheckpoint(i)
	}
	return b.items[i].reuse == messages.PartialCopy && p < b.self.end
}

// found are the blocks of a pool that prompt i claims whole, and where they are. Of a
// state pool a prefetch claims the checkpoint; any other prompt copies it.
func (b *promptBatch) found(i, p int) ([]protocol.BlockID, []protocol.Location) {
	m := b.matchFor(i, p)
	if !b.states.has(p) {
		return m.IDs[:m.Blocks], m.Pages[p][:m.Blocks]
	}
	if !b.storedOnly || m.Checkpoint == protocol.NoBlock {
		return nil, nil
	}
	it := &b.items[i]
	it.states.checkpoint[0] = m.Checkpoint
	return it.states.checkpoint[:], m.CheckpointPages[p : p+1]
}

// attentionProbe finds what the attention pools alone would have given to the prompts of a
// batch, which an admission answers besides what it reuses.
type attentionProbe struct{ batch *promptBatch }

// ask asks who holds the block that a match without states would end
// inside. Only without copies it matters: the block must then be taken over. It is asked
// before the batch claims anything, for a prompt is to be told what it alone would have
// found.
func (a attentionProbe) ask(i int) {
	b, it := a.batch, &a.batch.items[i]
	if b.states.empty() || b.config.CopyOnPartial || it.self < 0 {
		return
	}
	source := &b.match.Items[it.self].AttentionSource
	for p := 0; p < b.states.end && source.Block != protocol.NoBlock; p++ {
		op := -1
		if page, tier, ok := source.Pages[p].Page(); ok && tier == messages.Primary {
			op = b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect,
				Pages: []messages.PageID{page}})
		}
		it.states.probes = append(it.states.probes, op)
	}
}

// note notes what a match without states would have reused. Later matches of
// the same prompt, with less, do not change it.
func (a attentionProbe) note(i int) {
	it := &a.batch.items[i]
	if a.batch.states.empty() || it.self < 0 {
		return
	}
	m := &a.batch.match.Items[it.self]
	it.states.attention = m.Attention
	// Without copies a block that cannot be taken over is not reused in part.
	if it.states.probes != nil && (m.AttentionSource.HasChildren || a.held(i)) {
		it.states.attention = m.AttentionWhole
	}
	it.states.probes = nil
}

// held tells whether someone holds the block that ask has asked
// about.
func (a attentionProbe) held(i int) bool {
	it := &a.batch.items[i]
	block := a.batch.match.Items[it.self].AttentionSource.Block
	for p, op := range it.states.probes {
		if !a.batch.unheldIn(p, op, block) {
			return true
		}
	}
	return false
}

// inspectCheckpoint asks the state pools who holds the checkpoint of prompt i, and
// counts its pages as sources.
func (b *promptBatch) inspectCheckpoint(i int) {
	it := &b.items[i]
	// A prefetch claims its checkpoint like a whole block, see claim.
	if b.storedOnly {
		return
	}
	if !b.copiesCheckpoint(i) {
		// The prompt may have had one before it was matched again.
		for p := b.states.first; p < b.states.end; p++ {
			it.plans[p] = noPlan
		}
		return
	}
	m := &b.match.Items[it.self]
	for p := b.states.first; p < b.states.end; p++ {
		pl := &it.plans[p]
		*pl = noPlan
		if page, tier, _ := m.CheckpointPages[p].Page(); tier == messages.Primary {
			pl.source[0] = page
			pl.inspect = b.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: pl.source[:]})
			b.sources[p].pages[page] = false // see recountSources
		}
	}
}

// checkpointUnusable tells whether prompt i has a checkpoint but no page to copy it to:
// the only pages that are left in a state pool are checkpoints that are to be copied. Then
// the prompt goes without reuse, for a match that ends elsewhere would need a page, too. If no
// page is left at all, the prompt keeps its match and is refused for that pool.
func (b *promptBatch) checkpointUnusable(i int) bool {
	if !b.copiesCheckpoint(i) {
		return false
	}
	if b.items[i].states.noCheckpoint {
		return true
	}
	unusable := false
	for p := b.states.first; p < b.states.end; p++ {
		if b.left(p) < 1 {
			return false
		}
		unusable = unusable || b.copyRoom(p) < 1
	}
	return unusable
}

// withdrawUnusable takes the claims of a prompt back if it cannot reuse what it has
// matched, to match it again with less: without partial reuse, or without reuse if
// there is no page for the copy of a checkpoint. It returns false if the match stands.
func (b *promptBatch) withdrawUnusable(i int) bool {
	switch {
	case b.sourceUnusable(&b.items[i]):
		b.withdrawSource(i, b.match.Items[b.items[i].self].Limit)
	case b.checkpointUnusable(i):
		b.withdrawSource(i, 0)
	default:
		return false
	}
	return true
}

// fillStates plans what the working pages of the batch begin with. All copies come
// before all zeros: a page that is taken for a prompt without reuse may have been the
// checkpoint that another one copies, and copies of one Move take effect in order.
func (b promptTaking) fillStates() {
	if b.batch.storedOnly || b.batch.imported != nil {
		return
	}
	for i, it := range b.batch.open() {
		for p := b.batch.states.first; p < b.batch.states.end && b.batch.copiesCheckpoint(i); p++ {
			m := &b.batch.match.Items[it.self]
			b.copyInto(it, p, 0, protocol.PageCopy{From: m.CheckpointPages[p], Block: m.Checkpoint,
				Tokens: b.batch.config.TokensPerBlock})
		}
	}
	for i, it := range b.batch.open() {
		if !b.batch.copiesCheckpoint(i) {
			for p := b.batch.states.first; p < b.batch.states.end; p++ {
				b.batch.out.move.copy(p, protocol.PageCopy{To: it.sequence.Table(p)[0], Zero: true})
			}
		}
	}
}
