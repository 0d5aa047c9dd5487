package events

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/messages/kvevents"
)

// Draw writes an event in one line:
//
//	7 stored pool 1 after 00: a0 primary 35 (4 tokens), a1 primary 35 (2 tokens)
//
// Hashes are shortened to the bytes up to their last that is not zero, at most
// eight: the engine's own hashes to 16 digits, a test's to what it wrote.
func Draw(e *kvevents.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.ID, e.Type)
	if e.Type != kvevents.EventCleared {
		fmt.Fprintf(&b, " pool %d", e.Pool)
	}
	switch e.Type {
	case kvevents.EventCreated:
		fmt.Fprintf(&b, ": %d primary, %d secondary pages", e.PrimaryPages, e.SecondaryPages)
	case kvevents.EventStored:
		drawStored(&b, e)
	case kvevents.EventRemoved:
		for i, h := range e.Hashes {
			fmt.Fprintf(&b, "%s %s", separator(i), short(h))
		}
	case kvevents.EventUpdated:
		if e.TierChanged {
			fmt.Fprintf(&b, ": %s %s to %s", short(e.Hash), e.OldTier, e.NewTier)
		} else {
			fmt.Fprintf(&b, ": %s priority %d to %d", short(e.Hash), e.OldPriority, e.NewPriority)
		}
	}
	return b.String()
}

func drawStored(b *strings.Builder, e *kvevents.Event) {
	if e.HasParent {
		fmt.Fprintf(b, " after %s", short(e.Parent))
	}
	for i, s := range e.Blocks {
		fmt.Fprintf(b, "%s %s %s %d (%d tokens)", separator(i), short(s.Hash), s.Tier, s.Priority,
			len(s.Tokens))
	}
}

func separator(i int) string {
	if i == 0 {
		return ":"
	}
	return ","
}

func short(h kvevents.Hash) string {
	n := min(8, len(h))
	for n > 1 && h[n-1] == 0 {
		n--
	}
	return fmt.Sprintf("%x", h[:n])
}
