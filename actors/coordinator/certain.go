package coordinator

import "math"

// Admissions that are certain to get their pages.
//
//	match ─▶ claim ─▶ decide ─▶ take         the stages of any admission
//	match ─▶ claim and take                  of one that is certain
//
// What the pools answer to a claim is needed only if it can change what is decided. With enough
// pages it cannot, so claims and takes go in one message: claims of all prompts first, as ever,
// and no prompt can evict what another one has matched.

// takeAtOnce claims and takes in one message if the tree has just answered and no pool can
// lack a page. This is the usual admission: it has no claims to take back, and each pool
// spares a message.
func (a *admission) takeAtOnce() bool {
	if a.batch.stage != batchMatching || a.behindOthers() || !a.batch.claimIfCertain() {
		return false
	}
	a.next, a.batch.stage = len(a.batch.items), batchReady
	a.stage = admissionTaking
	a.taking.take()
	return true
}

// behindOthers tells whether another batch waits for pages before this one. A batch taken out of the
// admission queue was the first there: none waits before it.
func (a *admission) behindOthers() bool { return a.waiting.len() > 0 && !a.kernel.round.parked }

// claimIfCertain claims and plans all prompts if each of them is certain to get its pages,
// whatever the pools answer to the claims; then the caller takes the pages in the same message.
// Else it returns false, and the batch goes through its stages as if it had not been called.
//
// What the stages find out is known here: no block is reused in part or brought from host
// memory, no state is copied, and enough pages are left even if each claim takes one that was
// available.
func (b *promptBatch) claimIfCertain() bool {
	if !b.states.empty() {
		return false
	}
	b.out.pools.reset()
	for i := range b.items {
		if b.items[i].refused != nil || b.hasSource(i) {
			return false
		}
		b.claim(i, b.items[i].pools)
		b.plan(i)
	}
	for p := range b.config.Pools {
		if b.most(p) > b.counts.available(p) {
			return false
		}
	}
	return true
}

// most is the most pages that the claims and takes of a batch can cost a pool; math.MaxInt if
// some come from host memory.
func (b *promptBatch) most(p int) (n int) {
	for i := range b.items {
		if it := &b.items[i]; it.pools.has(p) {
			if it.plans[p].whole > it.plans[p].claimed {
				return math.MaxInt
			}
			n += it.plans[p].claimed + b.need(it, p)
		}
	}
	return n
}
