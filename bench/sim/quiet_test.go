package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// maxMessages is the number of messages after which an engine that still has not
// come to rest is taken for one that never will.
const maxMessages = 200_000

// runUntilIdle waits until the engine has answered everything.
func (w *world) runUntilIdle() bool {
	for n := 0; w.sched.Runnable() > 0; n++ {
		if n == maxMessages {
			w.failf("the engine does not come to rest; on their way: %v", w.flying)
			return false
		}
		w.sched.Step()
		w.hear()
		if w.failure != nil {
			return false
		}
	}
	w.hear()
	if w.sched.Runnable() > 0 || w.store.fetchOn() {
		return w.runUntilIdle()
	}
	if len(w.flying) > 0 {
		w.failf("nothing is left to do, but not answered: %v", w.flying)
	}
	return w.failure == nil && !w.dead
}

// serve sends a request at a quiet point and waits for its answer. A panic that
// was asked for before may abort it; then it is sent once more.
func (w *world) serve(record messages.Request, then ...func()) error {
	for range 8 {
		r := &request{kind: fmt.Sprintf("%T", record), record: record}
		heard := false
		r.then = func(err error) {
			heard = true
			if _, is := record.(*messages.Rebalance); is && err != nil {
				w.resizing = true
			}
			for _, f := range then {
				if err == nil {
					f()
				}
			}
		}
		w.submit(r)
		if !w.runUntilIdle() {
			return fmt.Errorf("%s: %w", r, errNoAnswer)
		}
		if !heard {
			return fmt.Errorf("%s was not answered", r)
		}
		if r.err == nil {
			return nil
		}
	}
	return fmt.Errorf("%T was aborted again and again", record)
}

// errNoAnswer says that the engine has failed in the middle of a check.
var errNoAnswer = fmt.Errorf("the engine did not answer")

// quiet comes to rest and checks everything; then it may rebalance.
func (w *world) quiet() {
	w.counts.add("quiet points", 1)
	w.tellf("quiet point")
	if !w.runUntilIdle() {
		return
	}
	if w.rng.IntN(4) == 0 && w.decoder() > 1 {
		w.rebalance()
	}
	if w.failure == nil && !w.dead {
		w.inspect()
	}
}

// inspect checks all that is claimed.
func (w *world) inspect() {
	w.sim.Drain()
	audit := &inspect.Check{}
	if w.stop(w.serve(audit)) || w.stop(audit.Err) {
		return
	}
	if w.stop(w.compareMirror()) || w.stop(w.verify()) {
		return
	}
	if found := w.hazards; len(found) > 0 {
		w.failf("%d hazards, the first: %s", len(found), strings.Join(found[:min(3, len(found))], "\n\t"))
	}
	for _, a := range w.hosts {
		if found := a.writer.Problems(); len(found) > 0 {
			w.failf("host %d: kernels read wrong bytes: %s", a.number,
				strings.Join(found[:min(3, len(found))], "\n\t"))
		}
	}
}

// stop keeps an error; an engine that has failed as it may is none.
func (w *world) stop(err error) bool {
	if err != nil && !w.dead {
		w.fail(err)
	}
	return err != nil || w.failure != nil || w.dead
}

// compareMirror holds the mirror against a snapshot.
func (w *world) compareMirror() error {
	read := &kvevents.ReadEvents{}
	if err := w.serve(read); err != nil {
		return err
	}
	w.follow(read.Batch)
	snapshot := &kvevents.ReadSnapshot{}
	if err := w.serve(snapshot); err != nil {
		return err
	}
	if !w.mirror.Stale() {
		if err := w.mirror.Compare(snapshot.Batch); err != nil {
			return err
		}
	}
	return w.mirror.Follow(snapshot.Batch)
}

// verify holds matches against what is stored, then reads every page that the
// tree or a sequence claims.
func (w *world) verify() error {
	if err := w.compareMatches(); err != nil {
		return err
	}
	contents := &protocol.ReadContents{}
	if err := w.serve(contents); err != nil {
		return err
	}
	claims := host.Claims{Blocks: contents.Blocks}
	for _, a := range w.hosts {
		for _, s := range append([]*sequence(nil), a.sequences...) {
			read := &messages.ReadTables{Sequences: []messages.SequenceID{s.id}}
			if err := w.serve(read); err != nil {
				return err
			}
			w.expect(&request{kind: "tables", by: a}, read.Results[0].Err)
			a.drop(s, read.Results[0].Err)
			if read.Results[0].Err != nil {
				continue
			}
			s.tables, s.known = cloneTables(read.Results[0].Tables), true
			tables := s.tables[:w.decoder()]
			if a.spoilt(s) {
				tables = tables[:len(tables)-1]
			}
			claims.Sequences = append(claims.Sequences, host.Held{
				Name: s.id.String(), Computed: s.computed, Beams: s.beams, Tables: tables,
			})
			if w.encodes {
				own := make(messages.Tables, len(w.pools))
				own[w.decoder()] = s.tables[w.decoder()]
				claims.Sequences = append(claims.Sequences, host.Held{
					Name: s.id.String() + "'s input", Computed: s.encoded, Beams: [][]host.Chain{s.input},
					Tables: own,
				})
			}
		}
	}
	for rank := range w.look {
		if err := verifyRank(w, rank, claims); err != nil {
			return err
		}
	}
	return nil
}

// verifyRank reads every claimed page of one rank.
func verifyRank(w *world, rank int, claims host.Claims) error {
	handles := w.engine.DevicePools()
	layouts := host.OfRank(w.layouts, rank)
	v := host.Verifier{Layouts: layouts, Read: func(p messages.PoolID, t messages.Tier,
		page messages.PageID) []byte {
		if t == messages.Secondary {
			return gpu.HostShare(w.sim, rank, handles[p], page)
		}
		return w.look[rank].Bytes(gpu.Slot{Pool: handles[p], Tier: t, Page: page})
	}}
	checked, problems := v.Verify(claims)
	w.counts.add("pages verified", checked)
	if rank > 0 {
		w.counts.add("pages verified, other ranks", checked)
	}
	if len(problems) > 0 {
		return fmt.Errorf("rank %d: %d pages hold wrong bytes, the first: %s", rank, len(problems),
			strings.Join(problems[:min(3, len(problems))], "\n\t"))
	}
	return nil
}

// rebalance moves memory between the pools, by fractions or by demand.
func (w *world) rebalance() {
	for _, a := range w.hosts {
		for _, s := range a.sequences {
			if s.written > s.computed {
				// A kernel that the engine was not told of.
				w.fail(w.device.Sync(context.Background(), s.last))
			}
		}
	}
	m := &messages.Rebalance{}
	if w.rng.IntN(3) > 0 {
		m.Fractions = map[string]float64{}
		sum := 0.0
		own := w.pools[:w.decoder()]
		parts := make([]float64, len(own))
		for p := range own {
			parts[p] = 1 + 2*w.rng.Float64()
			sum += parts[p]
		}
		for p := range own {
			m.Fractions[w.pools[p].Name] = parts[p] / sum
		}
	}
	w.stop(w.serve(m, func() { w.rebalanced(m) }))
}

// rebalanced follows the new page counts.
func (w *world) rebalanced(m *messages.Rebalance) {
	if code(m.Err) == messages.ErrInternal && w.lossy {
		w.counts.add("refusals, internal", 1)
		w.resizing = true
	} else {
		refusals := []messages.Code{messages.ErrOutOfPages}
		if w.recurrent {
			// Its pages may be larger than the part of a small device that a fraction gives.
			refusals = append(refusals, messages.ErrBadRequest)
		}
		w.expect(&request{kind: "rebalance"}, m.Err, refusals...)
	}
	if m.Err != nil {
		return
	}
	moved := 0
	for p := range m.Rebalanced.Pools {
		w.totals[p].Total = m.Rebalanced.Pools[p].PrimaryPages
		moved += len(m.Rebalanced.Moved[p])
	}
	w.tellf("rebalanced: %+v", m.Rebalanced)
	w.counts.add("rebalanced", 1)
	w.counts.add("pages renumbered", moved)
	for _, a := range w.hosts {
		for _, s := range a.sequences {
			s.known = false
		}
	}
}

// finish is the end of a run: the last checks, then the engine is closed. What
// it says it leaks is what the hosts still hold; half of the runs give
// everything back first, and then nothing may be held or cached.
func (w *world) finish() {
	if w.dead {
		w.runUntilIdle()
		if err := w.engine.Submit(&inspect.Check{}, func(error) {}); code(err) != messages.ErrFailed {
			w.failf("an engine that has failed answers a call with %q", code(err))
		}
		return
	}
	if !w.runUntilIdle() {
		return
	}
	w.inspect()
	if w.failure == nil && !w.dead && w.rng.IntN(2) == 0 {
		w.giveBack()
	}
	if w.failure != nil || w.dead {
		return
	}
	w.counts.addStats(w)
	if w.endLost(); w.failure != nil || w.dead {
		return
	}
	held := w.held()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	leaked, err := w.close(ctx)
	if code(err) == messages.ErrInternal && w.injected > 0 {
		return // the last panic came with the last call
	}
	w.fail(err)
	if leaked != held {
		w.failf("closed with %d pages leaked, the hosts hold %d", leaked, held)
	}
}

// endLost releases the sequences that were lost, which hold their pages until
// then.
func (w *world) endLost() {
	for _, a := range w.hosts {
		if len(a.gone) == 0 {
			continue
		}
		m := &messages.Release{Steps: a.gone}
		if w.stop(w.serve(m)) {
			return
		}
		a.gone = nil
	}
}

// held counts the pages in the hosts' tables.
func (w *world) held() int {
	seen := map[gpu.Slot]bool{}
	for _, a := range w.hosts {
		for _, s := range a.sequences {
			for p := range s.tables {
				for _, table := range s.tables[p] {
					for _, page := range table {
						if page != messages.NoPage {
							seen[gpu.Slot{Pool: gpu.Pool(p), Page: page}] = true
						}
					}
				}
			}
		}
	}
	return len(seen)
}

// giveBack releases and unpins everything and resets the cache.
func (w *world) giveBack() {
	w.endLost()
	for _, a := range w.hosts {
		m := &messages.Release{}
		for _, s := range a.sequences {
			m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: s.id, After: s.last,
				Discard: a.spoilt(s)})
		}
		if w.stop(w.serve(m)) {
			return
		}
		for i := range m.Results {
			w.expect(&request{kind: "release", by: a}, m.Results[i].Err)
		}
		a.sequences = nil
	}
	for _, pin := range w.pins {
		m := &messages.UnpinPrefix{Pin: pin}
		if w.stop(w.serve(m)) {
			return
		}
		w.expect(&request{kind: "unpin"}, m.Err, pinRefusals(w)...)
	}
	stats := &inspect.ReadStats{}
	if w.stop(w.serve(&messages.Reset{})) || w.stop(w.serve(stats)) {
		return
	}
	for _, p := range stats.Stats.Pools {
		if p.Primary.Free != p.Primary.Total || p.Secondary.Free != p.Secondary.Total {
			w.failf("pool %s, everything given back: %+v primary, %+v secondary", p.Name, p.Primary,
				p.Secondary)
		}
	}
	w.inspect()
}
