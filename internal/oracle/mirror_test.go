package oracle_test

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// mirror follows events: by pool, which keys there are, in which tier and at
// which priority.
type mirror []map[kvevents.Hash]key

type key struct {
	tier     messages.Tier
	priority messages.Priority
}

func newMirror(c oracle.Config) mirror {
	m := make(mirror, len(c.Pools))
	for i := range m {
		m[i] = map[kvevents.Hash]key{}
	}
	return m
}

// follow does what an event tells and gives the contradiction that it finds.
func (m mirror) follow(e kvevents.Event) string {
	switch e.Type {
	case kvevents.EventStored:
		for _, b := range e.Blocks {
			if _, there := m[e.Pool][b.Hash]; there {
				return fmt.Sprintf("%x is stored already", b.Hash)
			}
			m[e.Pool][b.Hash] = key{b.Tier, b.Priority}
		}
	case kvevents.EventRemoved:
		for _, h := range e.Hashes {
			if _, there := m[e.Pool][h]; !there {
				return fmt.Sprintf("%x is removed, but not there", h)
			}
			delete(m[e.Pool], h)
		}
	case kvevents.EventUpdated:
		k, there := m[e.Pool][e.Hash]
		switch {
		case !there:
			return fmt.Sprintf("%x is updated, but not there", e.Hash)
		case e.TierChanged && k.tier != e.OldTier, !e.TierChanged && k.priority != e.OldPriority:
			return fmt.Sprintf("%x is updated from what it is not: %v", e.Hash, e)
		case e.TierChanged:
			k.tier = e.NewTier
		default:
			k.priority = e.NewPriority
		}
		m[e.Pool][e.Hash] = k
	case kvevents.EventCleared:
		for _, keys := range m {
			if len(keys) > 0 {
				return "cleared, but keys are left"
			}
		}
	}
	return ""
}

// differ gives the first difference between two mirrors.
func (m mirror) differ(n mirror) string {
	for pool := range m {
		if len(m[pool]) != len(n[pool]) {
			return fmt.Sprintf("pool %d: %d keys and %d", pool, len(m[pool]), len(n[pool]))
		}
		for h, k := range m[pool] {
			if l, there := n[pool][h]; !there || k != l {
				return fmt.Sprintf("pool %d: key %x is %v and %v (%v)", pool, h, k, l, there)
			}
		}
	}
	return ""
}

// renamed is the mirror with the hashes of the other side.
func (m mirror) renamed(names *bijection[kvevents.Hash]) mirror {
	n := make(mirror, len(m))
	for pool := range m {
		n[pool] = map[kvevents.Hash]key{}
		for h, k := range m[pool] {
			n[pool][names.ab[h]] = k
		}
	}
	return n
}
