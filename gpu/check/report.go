package check

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/gpu"
)

// conflict is an earlier access that the operation at hand must come after.
type conflict struct {
	earlier    access
	verb, past string // of the later and of the earlier access
}

// pair names two operations, so that a batch of pages is one problem.
type pair struct {
	earlier, later       actorID
	earlierSeq, laterSeq uint64
}

// maxPairs bounds the memory for problems already reported; beyond it some are
// reported twice.
const maxPairs = 1 << 16

// demand reports a conflict that nothing orders.
func (d *Device) demand(a gpu.Access, c conflict) {
	// One stream, or the host itself: in order anyway.
	if c.earlier.actor == d.now.actor {
		return
	}
	// Both numbers are of the earlier actor, so one comparison decides.
	known := d.actors[d.now.actor].clock.at(c.earlier.actor)
	if c.earlier.seq <= known {
		return
	}
	// A batch of a thousand pages with one missing wait is one problem.
	key := pair{c.earlier.actor, d.now.actor, c.earlier.seq, d.now.seq}
	if _, again := d.pairs[key]; again {
		return
	}
	// To forget all is simpler than to choose, and at worst repeats a report.
	if len(d.pairs) == maxPairs {
		clear(d.pairs)
	}
	d.pairs[key] = struct{}{}
	later, earlier := d.actors[d.now.actor].name, d.actors[c.earlier.actor].name
	d.report(fmt.Sprintf("%s: %s %s what %s %s; nothing orders %s after operation %d of %s: %s",
		d.where(a), d.describe(d.now), c.verb, d.describe(c.earlier), c.past,
		later, d.seqOf(c.earlier), earlier, d.edge(c.earlier.actor, known)))
}

// edge says what the operation at hand does know of another actor.
func (d *Device) edge(of actorID, known uint64) string {
	later, earlier := d.actors[d.now.actor].name, d.actors[of].name
	base := d.actors[of].base
	switch {
	case of == host:
		return fmt.Sprintf("the host's scope was still open when %s was given the operation", later)
	// Knowledge of an earlier stream in the same actor is none of this one.
	case known <= base:
		return fmt.Sprintf("%s has waited for nothing of %s", later, earlier)
	default:
		return fmt.Sprintf("%s has waited for %s up to operation %d", later, earlier, known-base)
	}
}

// seqOf is the number of an operation on its stream.
func (d *Device) seqOf(a access) uint64 { return a.seq - d.actors[a.actor].base }

// unwritten reports a read of bytes that nothing has written.
func (d *Device) unwritten(a gpu.Access) {
	d.report(fmt.Sprintf("%s: %s reads what nothing has written", d.where(a), d.describe(d.now)))
}

// where names a page, and the bytes of it if they are not all.
func (d *Device) where(a gpu.Access) string {
	p := d.pools[a.Slot.Pool]
	s := fmt.Sprintf("pool %s %s page %d", p.name, a.Slot.Tier, a.Slot.Page)
	// A whole page needs no range: most accesses are of whole pages.
	if a.Bytes == p.bytes {
		return s
	}
	return fmt.Sprintf("%s bytes [%d, %d)", s, a.Offset, a.Offset+a.Bytes)
}

// describe names an operation: kind, label, stream and number.
func (d *Device) describe(a access) string {
	var b strings.Builder
	fmt.Fprint(&b, a.what)
	if a.label != "" {
		fmt.Fprintf(&b, " %q", a.label)
	}
	if a.actor == host {
		fmt.Fprintf(&b, " (host, %d)", a.seq)
	} else {
		fmt.Fprintf(&b, " (stream %s, operation %d)", d.actors[a.actor].name, d.seqOf(a))
	}
	return b.String()
}

// streamName names a stream, also one that the checker does not know.
func (d *Device) streamName(s gpu.Stream) string {
	if id, ok := d.ids[s]; ok {
		return "stream " + d.actors[id].name
	}
	return fmt.Sprintf("stream %d", s)
}

// report counts a problem and keeps the first ones. A program with one missing wait
// can have as many problems as it has steps, so the list is bounded.
func (d *Device) report(problem string) {
	d.count++
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, problem)
	}
	// Called also beyond maxProblems: the callback decides for itself.
	if d.options.OnProblem != nil {
		d.options.OnProblem(problem)
	}
}
