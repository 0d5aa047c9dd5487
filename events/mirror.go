package events

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// ErrStale says that a mirror has missed events and needs a snapshot.
var ErrStale = errors.New("events: the mirror has missed events and needs a snapshot")

// Key is one block as one pool knows it.
type Key struct {
	Pool messages.PoolID
	Hash kvevents.Hash
}

// Entry is what a mirror knows of a key.
type Entry struct {
	Tier     messages.Tier
	Priority messages.Priority
	Tokens   int // that the block holds; fewer than a block's if stored in part
}

// PoolPages is the size of a pool, from its last created event.
type PoolPages struct{ Primary, Secondary int }

// Mirror holds the keys of a cache by following its events. NewMirror makes one; the zero
// value is not ready.
type Mirror struct {
	// Keys are by pool, since each pool evicts by its own order: one block may be in
	// one pool and not in another.
	keys  map[Key]Entry
	pools map[messages.PoolID]PoolPages
	// next is the id that the next event must have. Batches never overlap, and leave
	// a gap only where events are lost.
	next  uint64
	stale bool
}

// NewMirror makes the mirror of a cache from its first event on, or, given a
// snapshot first, from there.
func NewMirror() *Mirror {
	return &Mirror{keys: map[Key]Entry{}, pools: map[messages.PoolID]PoolPages{}}
}

// Follow applies a batch and reports everything in it that contradicts what the
// mirror knew; the event's word counts then. When events are missing the mirror
// becomes stale: it applies nothing and answers ErrStale until it follows a snapshot.
// Contradictions do not make the mirror stale: no event is missing, so what it knows
// is as good as the events are. A test fails on them; a router may log them and go
// on.
func (m *Mirror) Follow(batch kvevents.EventBatch) error {
	if batch.Snapshot {
		return m.restart(batch)
	}
	// The loss is reported once with its size. After that ErrStale alone says that
	// the snapshot is still to come.
	if batch.Lost > 0 && !m.stale {
		m.stale = true
		return fmt.Errorf("%w: %d lost before event %d", ErrStale, batch.Lost, m.next+batch.Lost)
	}
	if m.stale {
		return ErrStale
	}
	var problems []error
	for i := range batch.Events {
		e := &batch.Events[i]
		// The events before the gap have been applied and stay applied; the rest of
		// the batch is not.
		if e.ID != m.next {
			m.stale = true
			gap := fmt.Errorf("%w: event %d where event %d should be", ErrStale, e.ID, m.next)
			return errors.Join(append(problems, gap)...)
		}
		m.next++
		problems = append(problems, m.apply(e)...)
	}
	return errors.Join(problems...)
}

// restart forgets all keys and takes those of a snapshot.
func (m *Mirror) restart(batch kvevents.EventBatch) error {
	// The sizes of pools stay: a snapshot does not have them.
	clear(m.keys)
	m.next, m.stale = batch.Next, false
	var problems []error
	for i := range batch.Events {
		e := &batch.Events[i]
		if e.Type != kvevents.EventStored {
			problems = append(problems, fmt.Errorf("events: a snapshot with %s", Draw(e)))
			continue
		}
		problems = append(problems, m.store(e)...)
	}
	return errors.Join(problems...)
}

// apply changes the mirror by one event.
func (m *Mirror) apply(e *kvevents.Event) []error {
	switch e.Type {
	case kvevents.EventCreated:
		m.pools[e.Pool] = PoolPages{Primary: e.PrimaryPages, Secondary: e.SecondaryPages}
		return nil
	case kvevents.EventStored:
		return m.store(e)
	case kvevents.EventRemoved:
		return m.remove(e)
	case kvevents.EventUpdated:
		return m.update(e)
	case kvevents.EventCleared:
		return m.clear(e)
	default:
		return contradiction(e, "no event is of this type")
	}
}

func (m *Mirror) store(e *kvevents.Event) (problems []error) {
	if len(e.Blocks) == 0 {
		return contradiction(e, "it stores nothing")
	}
	for _, b := range e.Blocks {
		k := Key{e.Pool, b.Hash}
		// The event counts all the same: keeping the old entry would make the next
		// events contradict it too.
		if _, known := m.keys[k]; known {
			problems = append(problems, contradiction(e, "%s is stored already", short(b.Hash))...)
		}
		if b.Priority > messages.MaxPriority {
			problems = append(problems, contradiction(e, "priority %d is above %d", b.Priority,
				messages.MaxPriority)...)
		}
		m.keys[k] = Entry{Tier: b.Tier, Priority: b.Priority, Tokens: len(b.Tokens)}
	}
	return problems
}

func (m *Mirror) remove(e *kvevents.Event) (problems []error) {
	if len(e.Hashes) == 0 {
		return contradiction(e, "it removes nothing")
	}
	for _, h := range e.Hashes {
		k := Key{e.Pool, h}
		if _, known := m.keys[k]; !known {
			problems = append(problems, contradiction(e, "%s is not stored", short(h))...)
		}
		delete(m.keys, k)
	}
	return problems
}

func (m *Mirror) update(e *kvevents.Event) (problems []error) {
	k := Key{e.Pool, e.Hash}
	entry, known := m.keys[k]
	if !known {
		return contradiction(e, "%s is not stored", short(e.Hash))
	}
	// The new value is taken even if the old one does not agree, so that one error is
	// reported once.
	if e.TierChanged {
		if entry.Tier != e.OldTier || e.OldTier == e.NewTier {
			problems = contradiction(e, "%s is in the %s tier", short(e.Hash), entry.Tier)
		}
		entry.Tier = e.NewTier
	} else {
		if entry.Priority != e.OldPriority || e.OldPriority == e.NewPriority ||
			e.NewPriority > messages.MaxPriority {
			problems = contradiction(e, "%s has priority %d", short(e.Hash), entry.Priority)
		}
		entry.Priority = e.NewPriority
	}
	m.keys[k] = entry
	return problems
}

func (m *Mirror) clear(e *kvevents.Event) (problems []error) {
	if n := len(m.keys); n > 0 {
		problems = contradiction(e, "%d keys are stored", n)
	}
	clear(m.keys)
	return problems
}

// contradiction is an event and the fact that speaks against it.
func contradiction(e *kvevents.Event, fact string, args ...any) []error {
	return []error{fmt.Errorf("events: %s: but "+fact, append([]any{Draw(e)}, args...)...)}
}

// Stale tells whether the mirror needs a snapshot.
func (m *Mirror) Stale() bool { return m.stale }

// Len is the number of keys, of all pools.
func (m *Mirror) Len() int { return len(m.keys) }

// Find returns what the mirror knows of a key.
func (m *Mirror) Find(k Key) (Entry, bool) {
	e, ok := m.keys[k]
	return e, ok
}

// Pool gives the size of a pool; a mirror that began with a snapshot does not
// know it.
func (m *Mirror) Pool(p messages.PoolID) (PoolPages, bool) {
	pages, ok := m.pools[p]
	return pages, ok
}

// All gives the keys by pool, then by hash. It sorts all of them, for pictures and tests.
func (m *Mirror) All() iter.Seq2[Key, Entry] {
	return func(yield func(Key, Entry) bool) {
		keys := slices.SortedFunc(maps.Keys(m.keys), func(a, b Key) int {
			return cmp.Or(cmp.Compare(a.Pool, b.Pool), slices.Compare(a.Hash[:], b.Hash[:]))
		})
		for _, k := range keys {
			if !yield(k, m.keys[k]) {
				return
			}
		}
	}
}

// Compare reports every difference between the mirror and a snapshot of the
// cache that was taken at the same moment.
func (m *Mirror) Compare(snapshot kvevents.EventBatch) error {
	truth := NewMirror()
	problems := []error{truth.restart(snapshot)}
	if m.next != snapshot.Next {
		problems = append(problems, fmt.Errorf("events: the mirror is at event %d, the snapshot at %d",
			m.next, snapshot.Next))
	}
	for k, want := range truth.All() {
		switch have, ok := m.keys[k]; {
		case !ok:
			problems = append(problems, fmt.Errorf("events: the mirror lacks %s", drawKey(k, want)))
		case have != want:
			problems = append(problems, fmt.Errorf("events: the mirror has %s, the cache %s",
				drawKey(k, have), drawKey(k, want)))
		}
	}
	// The other direction finds keys that the cache does not have.
	for k, have := range m.All() {
		if _, ok := truth.keys[k]; !ok {
			problems = append(problems, fmt.Errorf("events: the mirror has %s, the cache does not",
				drawKey(k, have)))
		}
	}
	return errors.Join(problems...)
}

// String draws the keys, a line for each.
func (m *Mirror) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d keys, next event %d", len(m.keys), m.next)
	if m.stale {
		b.WriteString(", stale")
	}
	b.WriteByte('\n')
	for k, e := range m.All() {
		fmt.Fprintf(&b, "  %s\n", drawKey(k, e))
	}
	return b.String()
}

func drawKey(k Key, e Entry) string {
	return fmt.Sprintf("pool %d %s %s %d (%d tokens)", k.Pool, short(k.Hash), e.Tier, e.Priority,
		e.Tokens)
}
