package cross

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// rebalance moves memory between the decoder's pools; the cross pool keeps its
// fraction.
func (j *Join) rebalance(r *messages.Rebalance) {
	j.toDecoder(r, served(func(j *Join) {
		if r.Err == nil {
			r.Rebalanced.Pools = append(r.Rebalanced.Pools, j.pool)
			r.Rebalanced.Moved = append(r.Rebalanced.Moved, nil)
		}
		j.reply()
	}))
}

// readStats counts requests and tokens as the decoder does; the cross pool
// comes last.
func (j *Join) readStats(r *messages.ReadStats) {
	other := &messages.ReadStats{}
	j.both(r, other, func(j *Join) {
		r.Stats.Pools = append(r.Stats.Pools, other.Stats.Pools...)
		r.Stats.Rounds += other.Stats.Rounds
		r.Stats.Restarts += other.Stats.Restarts + j.restarts
		j.reply()
	})
}

// readContents lists the blocks of both sides, each with a place in every pool.
func (j *Join) readContents(r *messages.ReadContents) {
	other := &messages.ReadContents{}
	j.both(r, other, func(j *Join) {
		for i := range r.Blocks {
			r.Blocks[i].Pages = append(r.Blocks[i].Pages[:len(r.Blocks[i].Pages):len(r.Blocks[i].Pages)], messages.Nowhere)
		}
		first := len(r.Blocks)
		for _, b := range other.Blocks {
			if b.Parent >= 0 {
				b.Parent += first
			}
			pages := make([]messages.Location, int(j.pool.ID), int(j.pool.ID)+1)
			for p := range pages {
				pages[p] = messages.Nowhere
			}
			b.Pages = append(pages, b.Pages...)
			b.Tokens, b.Cross = j.unpadded(&b), true
			r.Blocks = append(r.Blocks, b)
		}
		j.reply()
	})
}

// unpadded is the encoder tokens of a block.
func (j *Join) unpadded(b *messages.Content) []messages.Token {
	left := keyLength(b.Namespace.Encoder) - b.Depth*j.config.TokensPerBlock
	return b.Tokens[:min(len(b.Tokens), left)]
}

// check checks both sides, then that they have the same sequences.
func (j *Join) check(r *messages.Check) {
	other := &messages.Check{}
	j.both(r, other, func(j *Join) {
		decoder, encoder := &messages.ReadStats{}, &messages.ReadStats{}
		j.both(decoder, encoder, func(j *Join) {
			problems := []error{r.Err, other.Err, j.Check()}
			if d, e, n := decoder.Stats.Sequences, encoder.Stats.Sequences, len(j.partners); d != n || e != n {
				problems = append(problems, fmt.Errorf("cross: %d sequences run on the decoder's side, %d on the cross side, %d are joined", d, e, n))
			}
			r.Err = errors.Join(problems...)
			j.reply()
		})
	})
}

// close counts what both sides hold; it ends neither.
func (j *Join) close(r *protocol.Close) {
	other := &protocol.Close{}
	j.both(r, other, func(j *Join) {
		r.LeakedPages += other.LeakedPages
		j.reply()
	})
}
