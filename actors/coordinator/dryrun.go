package coordinator

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
)

// dryRun serves DryRunAdmit: it goes the way of a batch of admissions until all
// prompts are decided about, and gives all claims back. Its answer is what the batch
// would be refused for.
//
//	start ─▶ claiming ─▶ (decide, in order) ─▶ unclaiming ─▶ releasing ─▶ following ─▶ answer
//	         see batch.go   │ ▲                              the tree forgets
//	                        ▼ │                              symbols
//	                     refusing
type dryRun struct {
	admission // its scratch state; the stages up to deciding are its own
	dry       *protocol.DryRunAdmit
	ending    bool // the claims are being given back
}

// openDry begins a request.
func (d *dryRun) openDry(r *protocol.DryRunAdmit) {
	d.dry, d.stage, d.ending = r, admissionIdle, false
}

// start enters the prompts that are right in themselves and matches them.
func (d *dryRun) start() {
	d.batch.reset(false)
	d.symbols, d.parked, d.next, d.ending = d.symbols[:0], false, 0, false
	d.dry.Err = nil
	d.dry.Results = d.batch.enter(d.dry.Requests, d.dry.Results)
	if len(d.batch.items) == 0 {
		d.kernel.reply()
		return
	}
	d.stage = admissionClaiming
	d.batch.send()
}

// resume does the stage that follows.
func (d *dryRun) resume() {
	switch {
	case d.stage == admissionClaiming && d.batch.resume():
		d.decide()
	case d.stage == admissionClaiming:
	case d.stage == admissionRefusing && !d.ending:
		d.out.pools.received()
		d.batch.recountSources()
		d.decide()
	case d.stage == admissionRefusing:
		d.out.pools.received()
		d.endAll()
	default:
		d.admission.resume()
	}
}

// decide goes through the prompts in order, as an admission does.
func (d *dryRun) decide() {
	b := d.batch
	for ; d.next < len(b.items); d.next++ {
		it := &b.items[d.next]
		if it.refused != nil {
			continue
		}
		if b.sourceUnusable(d.next) {
			d.stage = admissionClaiming
			b.withdrawSource(d.next)
			return
		}
		b.plan(d.next)
		if refusal, _ := b.checkCapacity(it); refusal != nil {
			d.next++
			b.refuse(it, refusal)
			d.stage = admissionRefusing
			d.out.pools.send()
			return
		}
		b.reserve(d.next)
	}
	d.out.pools.reset()
	for i := range b.items {
		if it := &b.items[i]; it.refused == nil {
			b.unclaim(it)
		}
	}
	d.ending, d.stage = true, admissionRefusing
	d.out.pools.send()
}

// endAll ends the sequences, refused or not.
func (d *dryRun) endAll() {
	for i := range d.batch.items {
		it := &d.batch.items[i]
		if it.refused != nil {
			d.endRefused(it)
			continue
		}
		if symbols := it.sequence.ReleaseSymbols(); symbols != nil {
			d.symbols = append(d.symbols, symbols)
		}
		d.sequences.End(it.sequence)
		it.sequence = nil
	}
	d.releaseSymbols()
}

// String names the stage.
func (d *dryRun) String() string { return fmt.Sprintf("dry run: %v", d.stage) }
