package oracle_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// compareEvents takes the events of both and compares them pool by pool. What
// the semantics leave open is levelled: the order between pools, whether
// consecutive removals are one event, the order of priority changes, and
// whether a key that comes to the device only to be removed is told of twice.
func (r *run) compareEvents(t *rapid.T) {
	a, ea := r.a.Events(r.ctx)
	b, eb := r.b.Events(r.ctx)
	r.same(t, "events", ea, eb, a.Lost, b.Lost)
	for side, batch := range []kvevents.EventBatch{a, b} {
		for _, e := range batch.Events {
			if d := r.mirrors[side].follow(e); d != "" {
				t.Fatalf("implementation %d: a mirror cannot follow the event %+v: %s", side, e, d)
			}
		}
	}
	for pool := range r.config.Pools {
		// What is stored comes first: it teaches which hash is which.
		for _, kind := range []func([]kvevents.Event) []event{stored, moved, repriced, others} {
			r.sameEvents(t, kind(ofPool(a, pool)), kind(ofPool(b, pool)))
		}
	}
	r.same(t, "number of cleared events", nil, nil, cleared(a), cleared(b))
}

// event is an event with its names apart: text must be equal, names must be one
// to one, in order or, with loose, in any.
type event struct {
	text  string
	names []kvevents.Hash
	loose bool
}

func (r *run) sameEvents(t *rapid.T, a, b []event) {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i].text != b[i].text || len(a[i].names) != len(b[i].names) ||
			!r.sameNames(a[i], b[i]) {
			t.Fatalf("events differ at %d:\n a: %s\n b: %s", i, drawEvents(a), drawEvents(b))
		}
	}
}

func (r *run) sameNames(a, b event) bool {
	if !a.loose {
		for i := range a.names {
			if !r.hashes.same(a.names[i], b.names[i]) {
				return false
			}
		}
		return true
	}
	for _, h := range a.names {
		if !slices.Contains(b.names, r.hashes.ab[h]) {
			return false
		}
	}
	return true
}

func drawEvents(all []event) string {
	var lines []string
	for _, e := range all {
		names := ""
		for _, h := range e.names {
			names += fmt.Sprintf(" %x", h[:3])
		}
		lines = append(lines, e.text+names)
	}
	return strings.Join(lines, "; ")
}

func ofPool(b kvevents.EventBatch, pool int) []kvevents.Event {
	return slices.DeleteFunc(slices.Clone(b.Events), func(e kvevents.Event) bool {
		return e.Type == kvevents.EventCleared || int(e.Pool) != pool
	})
}

func cleared(b kvevents.EventBatch) (n int) {
	for _, e := range b.Events {
		if e.Type == kvevents.EventCleared {
			n++
		}
	}
	return n
}

// stored gives the stored events in order. The parent is a name only if there
// is one.
func stored(all []kvevents.Event) (list []event) {
	for _, e := range all {
		if e.Type != kvevents.EventStored {
			continue
		}
		x := event{text: fmt.Sprintf("stored, parent %v:", e.HasParent)}
		if e.HasParent {
			x.names = append(x.names, e.Parent)
		}
		for _, b := range e.Blocks {
			x.names = append(x.names, b.Hash)
			x.text += fmt.Sprintf(" %v %v %d", b.Tokens, b.Tier, b.Priority)
		}
		list = append(list, x)
	}
	return list
}

// moved gives tier changes and removals in order, removals in a row as one.
func moved(all []kvevents.Event) (list []event) {
	for i, e := range all {
		switch {
		case e.Type == kvevents.EventUpdated && e.TierChanged:
			if !removedAfter(all[i+1:], e) {
				list = append(list, event{text: fmt.Sprintf("%v to %v", e.OldTier, e.NewTier),
					names: []kvevents.Hash{e.Hash}})
			}
		case e.Type == kvevents.EventRemoved:
			if n := len(list); n > 0 && list[n-1].loose {
				list[n-1].names = append(list[n-1].names, e.Hashes...)
			} else {
				list = append(list, event{text: "removed", names: slices.Clone(e.Hashes), loose: true})
			}
		}
	}
	return list
}

// removedAfter reports whether the next thing that happens to a key that was
// brought to the device is its removal.
func removedAfter(rest []kvevents.Event, e kvevents.Event) bool {
	if e.NewTier != messages.Primary {
		return false
	}
	for _, next := range rest {
		switch next.Type {
		case kvevents.EventRemoved:
			if slices.Contains(next.Hashes, e.Hash) {
				return true
			}
		case kvevents.EventUpdated:
			if next.Hash == e.Hash && next.TierChanged {
				return false
			}
		}
	}
	return false
}

// repriced gives the priority changes, sorted: as one event for each change.
func repriced(all []kvevents.Event) (list []event) {
	byText := map[string]*event{}
	for _, e := range all {
		if e.Type != kvevents.EventUpdated || e.TierChanged {
			continue
		}
		text := fmt.Sprintf("priority %d to %d", e.OldPriority, e.NewPriority)
		if byText[text] == nil {
			byText[text] = &event{text: text, loose: true}
		}
		byText[text].names = append(byText[text].names, e.Hash)
	}
	for _, e := range byText {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b event) int { return strings.Compare(a.text, b.text) })
	return list
}

// others gives what is left, as it is.
func others(all []kvevents.Event) (list []event) {
	for _, e := range all {
		switch e.Type {
		case kvevents.EventStored, kvevents.EventRemoved, kvevents.EventUpdated:
		default:
			list = append(list, event{text: fmt.Sprint(e.Type, " ", e.PrimaryPages, " ", e.SecondaryPages)})
		}
	}
	return list
}
