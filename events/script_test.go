package events

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/messages"
)

// TestScripts runs testdata/scripts. Commands:
//
//	new limit=N          a log and a mirror
//	append               a line for each event, in the words of parse
//	take | snapshot      the batch, and what the mirror says to it
//	log | mirror         the picture
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t      *testing.T
	log    *Log
	mirror *Mirror
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		var limit int
		d.ScanArgs(t, "limit", &limit)
		s.log, s.mirror = New(limit), NewMirror()
		return ""
	case "append":
		s.log.Append(wrap(s.parse(d.Input)))
		return s.log.String()
	case "take":
		return s.tell(take(s.log))
	case "snapshot":
		return s.tell(snapshot(s.log, s.parse(d.Input)))
	case "log":
		return s.log.String()
	case "mirror":
		return s.mirror.String()
	}
	d.Fatalf(t, "no command %s", d.Cmd)
	return ""
}

func (s *script) tell(batch messages.EventBatch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lost", batch.Lost)
	if batch.Snapshot {
		fmt.Fprintf(&b, ", next %d", batch.Next)
	}
	b.WriteByte('\n')
	for _, e := range batch.Events {
		fmt.Fprintf(&b, "  %s\n", Draw(&e))
	}
	if err := s.mirror.Follow(batch); err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return b.String()
}

// parse reads events: "stored P [after H] H…", "removed P H…", "tier P H" (to
// host memory), "back P H", "priority P H from to", "created P n m", "cleared".
func (s *script) parse(input string) (events []messages.Event) {
	for line := range strings.Lines(input) {
		w := strings.Fields(line)
		e := messages.Event{Type: messages.EventType(w[0])}
		if len(w) > 1 {
			s.scan(w[1], &e.Pool)
			w = w[2:]
		}
		switch string(e.Type) {
		case "created":
			s.scan(w[0], &e.PrimaryPages)
			s.scan(w[1], &e.SecondaryPages)
		case "stored":
			if w[0] == "after" {
				e.Parent, e.HasParent, w = s.hash(w[1]), true, w[2:]
			}
			for _, h := range w {
				e.Blocks = append(e.Blocks, messages.StoredBlock{Hash: s.hash(h), Tokens: make([]messages.Token, 4), Priority: 35})
			}
		case "removed":
			for _, h := range w {
				e.Hashes = append(e.Hashes, s.hash(h))
			}
		case "tier", "back":
			e.TierChanged, e.OldTier, e.NewTier = true, messages.Primary, messages.Secondary
			if e.Type == "back" {
				e.OldTier, e.NewTier = messages.Secondary, messages.Primary
			}
			e.Type, e.Hash = messages.EventUpdated, s.hash(w[0])
		case "priority":
			e.Type, e.Hash = messages.EventUpdated, s.hash(w[0])
			s.scan(w[1], &e.OldPriority)
			s.scan(w[2], &e.NewPriority)
		}
		events = append(events, e)
	}
	return events
}

func (s *script) scan(word string, into any) {
	if _, err := fmt.Sscan(word, into); err != nil {
		s.t.Fatalf("%q: %v", word, err)
	}
}

func (s *script) hash(word string) messages.Hash {
	raw, err := hex.DecodeString(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return hash(raw...)
}
