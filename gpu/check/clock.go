package check

import (
	"errors"
	"sort"

	"github.com/kvactor/kvactor/gpu"
)

// actorID is the index of an actor.
// Indices are dense, since a clock is an array by them.
type actorID int32

// host is the actor that calls the device.
const host actorID = 0

// maxVersions bounds what a stream remembers for tickets that no one has
// waited for yet.
const maxVersions = 1 << 13

// clock is what an actor comes after: by actor, the number of an operation.
// Missing entries are 0.
type clock []uint64

// at is the operation of an actor up to which c comes after it.
func (c clock) at(a actorID) uint64 {
	if int(a) < len(c) {
		return c[a]
	}
	return 0
}

// join takes over what another clock knows; it tells whether that was news.
func (c *clock) join(other clock) (news bool) {
	for len(*c) < len(other) {
		*c = append(*c, 0)
	}
	// Element by element: what an actor knows of others only grows, so the maximum is the union.
	for a, n := range other {
		if n > (*c)[a] {
			(*c)[a] = n
			news = true
		}
	}
	return news
}

// raise makes c come after an operation of an actor.
func (c *clock) raise(a actorID, n uint64) {
	// Clocks grow with the streams that they know of, so a stream that waits for no other costs one
	// entry.
	for len(*c) <= int(a) {
		*c = append(*c, 0)
	}
	(*c)[a] = max((*c)[a], n)
}

// covers tells whether c knows all that other does.
func (c clock) covers(other clock) bool {
	for a, n := range other {
		if n > c.at(actorID(a)) {
			return false
		}
	}
	return true
}

// actor is a stream or the host.
//
// Operations of an actor are numbered through all streams that it has been, so
// that those of a destroyed stream stay below those of the next: number = base +
// Seq of the ticket.
type actor struct {
	name string
	base uint64
	// clock never loses knowledge: what has passed has passed.
	clock clock
	last  uint64 // number of the last operation that had a ticket
	// versions is what the actor knew, itself apart, at its operations from
	// number since on; ascending. A ticket is looked up in it.
	versions []version
	changed  bool    // the clock has news since the newest version
	spare    []clock // of versions that were forgotten, for new ones
}

// version is what an actor knew from one of its operations on.
type version struct {
	since uint64
	clock clock
}

// newActor makes an actor for a stream, or reuses that of a destroyed stream,
// so that clocks are no longer than there were streams at one time.
func (d *Device) newActor(name string) actorID {
	n := len(d.free)
	if n == 0 {
		d.actors = append(d.actors, actor{name: name})
		return actorID(len(d.actors) - 1)
	}
	id := d.free[n-1]
	d.free = d.free[:n-1]
	a := &d.actors[id]
	// The clocks of others may know operations of the earlier stream; with the new base they stay
	// below those of the new one.
	a.name, a.base = name, a.last
	return id
}

// freeActor ends an actor whose work has all passed. The host knows all that the
// actor knew, and with it whatever is submitted later; nothing the actor did can
// be in conflict with that.
func (d *Device) freeActor(id actorID) {
	a := &d.actors[id]
	// The device has destroyed the stream, so all of its work has passed.
	h := &d.actors[host]
	// Operations without a ticket, as waits, have raised only the clock.
	a.last = max(a.last, a.clock.at(id))
	h.clock.join(a.clock)
	h.clock.raise(id, a.last)
	h.changed = true
	a.clock, a.versions, a.changed = a.clock[:0], a.versions[:0], false
	d.free = append(d.free, id)
}

// number is the number of the operation that a ticket of a live stream names.
func (d *Device) number(t gpu.Ticket) uint64 { return d.actors[d.ids[t.Stream]].base + t.Seq }

// learn makes an actor come after what tickets cover.
func (d *Device) learn(id actorID, tickets []gpu.Ticket) {
	for _, t := range tickets {
		d.learnOne(id, t)
	}
}

// learnOne makes an actor come after what one ticket covers: the operation of the
// ticket, and what the stream of the ticket knew then. Tickets of streams that the
// checker does not know, or that have been destroyed, teach nothing new.
func (d *Device) learnOne(id actorID, t gpu.Ticket) {
	// A stream knows its own order without waiting.
	from, ok := d.ids[t.Stream]
	if !ok || from == id {
		return
	}
	a, b := &d.actors[id], &d.actors[from]
	n := d.number(t)
	// Two facts: the operation itself, and all that it had waited for. The second makes waits
	// transitive.
	a.clock.raise(from, n)
	a.changed = true
	if v := b.version(n); v != nil {
		a.clock.join(v)
	}
}

// version is what the actor knew at an operation. Versions that were forgotten
// are answered with the oldest kept: that may hide a hazard behind a very old
// ticket, but never invents one.
func (a *actor) version(seq uint64) clock {
	// The newest version that is not newer than the operation.
	i := sort.Search(len(a.versions), func(i int) bool { return a.versions[i].since > seq })
	if i == 0 {
		return nil
	}
	return a.versions[i-1].clock
}

// begin makes the next operation of a stream: it knows what the host knew and
// what it waits for.
func (d *Device) begin(id actorID, t gpu.Ticket, waits []gpu.Ticket) {
	a := &d.actors[id]
	// Whatever is submitted comes after what the host has seen pass.
	if a.clock.join(d.actors[host].clock) {
		a.changed = true
	}
	// The waits come before the operation, so they count for its own accesses.
	d.learn(id, waits)
	n := d.number(t)
	d.actors[id].clock.raise(id, n)
	d.now = access{actor: id, seq: n}
}

// end closes an operation or a fence: tickets from it on cover what the stream
// knows now.
func (d *Device) end(id actorID, seq uint64) {
	a := &d.actors[id]
	// A version is kept only if there is news, so a stream that waits for nothing keeps one.
	if a.changed {
		a.changed = false
		a.keep(a.last+1, d.actors[host].clock)
	}
	a.last = max(a.last, seq)
}

// keep adds a version. Those that tell nothing beyond what the host knows are
// forgotten: whoever could learn from them has it from the host.
func (a *actor) keep(since uint64, known clock) {
	v := version{since: since}
	n := 0
	// Versions ascend, and so does what they know: the search ends at the first that tells news.
	for n < len(a.versions) && known.covers(a.versions[n].clock) {
		n++
	}
	// Half are dropped at once: to drop one at a time would move the array for each operation.
	if n == 0 && len(a.versions) >= maxVersions {
		n = maxVersions / 2
		a.versions[n].since = a.versions[0].since
	}
	for i := range n {
		a.spare = append(a.spare, a.versions[i].clock[:0])
	}
	a.versions = a.versions[:copy(a.versions, a.versions[n:])]
	if last := len(a.spare) - 1; last >= 0 {
		v.clock, a.spare = a.spare[last], a.spare[:last]
	}
	v.clock = append(v.clock, a.clock...)
	a.versions = append(a.versions, v)
}

// acceptedOf is the number of copies of a failed batch that were queued.
func acceptedOf(err error) int {
	// Any other error refuses the batch as a whole.
	var failed *gpu.CopyError
	if errors.As(err, &failed) {
		return failed.Index
	}
	return 0
}
