package events

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// TestScripts runs testdata/scripts. Commands:
//
//	new limit=N                      a log, its first reader and a mirror for it
//	append                           a line for each event, in the words of change
//	open                             another reader, with a mirror
//	close reader=R
//	take | snapshot [reader=R]       the batch, and what the reader's mirror says to it
//	log | mirror [reader=R]          the picture
//
// Blocks have names instead of hashes, and three tokens. The first time that a name
// is stored the block enters the tree, behind the one before it in the line.
func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(t *testing.T) scripttest.Serve { return (&script{t: t}).run })
}

type script struct {
	t       *testing.T
	log     *Log
	tree    forest
	named   map[string]*block
	words   []string // hashes as drawn and names, in turn
	mirrors map[kvevents.ReaderID]*Mirror
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	id := kvevents.ReaderID(scripttest.Number(t, d, "reader", int(FirstReader)))
	switch d.Cmd {
	case "new":
		var limit int
		d.ScanArgs(t, "limit", &limit)
		*s = script{t: t, log: newLog(limit), named: map[string]*block{},
			mirrors: map[kvevents.ReaderID]*Mirror{id: NewMirror()}}
		return ""
	case "append":
		for line := range strings.Lines(d.Input) {
			s.change(strings.Fields(line))
		}
		s.tree.log(s.log)
		return s.log.String()
	case "open":
		id, err := s.log.OpenReader()
		s.mirrors[id] = NewMirror()
		return fmt.Sprintf("reader %d %v\n", id, err)
	case "close":
		return fmt.Sprintf("%v\n%s", s.log.CloseReader(id), s.log)
	case "take":
		return s.told(id, take(t, s.log, id))
	case "snapshot":
		return s.told(id, snapshot(t, s.log, id, s.tree.keys()))
	case "log":
		return s.log.String()
	case "mirror":
		return s.draw(s.mirrors[id].String())
	}
	d.Fatalf(t, "no command %s", d.Cmd)
	return ""
}

func (s *script) told(id kvevents.ReaderID, batch kvevents.EventBatch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lost", batch.Lost)
	if batch.Snapshot {
		fmt.Fprintf(&b, ", next %d", batch.Next)
	}
	b.WriteByte('\n')
	for _, e := range batch.Events {
		fmt.Fprintf(&b, "  %s\n", Draw(&e))
	}
	if err := s.mirrors[id].Follow(batch); err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return s.draw(b.String())
}

// draw puts names in the place of hashes.
func (s *script) draw(text string) string { return strings.NewReplacer(s.words...).Replace(text) }

// change reads what happens: "stored P [after N] N…", "removed P N…", "tier P N" (to
// host memory), "back P N", "priority P N from to", "created P n m", "cleared",
// "gone N" (from the tree).
func (s *script) change(w []string) {
	kind, pool := w[0], messages.PoolID(0)
	if len(w) > 1 && kind != "gone" {
		s.scan(w[1], &pool)
		w = w[1:]
	}
	w = w[1:]
	c := protocol.Change{Pool: pool, Priority: messages.DefaultPriority}
	switch kind {
	case "created":
		var p PoolPages
		s.scan(w[0], &p.Primary)
		s.scan(w[1], &p.Secondary)
		s.tree.log(s.log)
		s.log.Created(pool, p)
		return
	case "cleared":
		s.tree.changes.List = append(s.tree.changes.List,
			protocol.Change{Kind: protocol.EverythingForgot})
		return
	case "gone":
		s.tree.leave(s.named[w[0]])
		delete(s.named, w[0])
		return
	case "stored":
		c.Kind = protocol.BlocksStored
		s.enter(w)
		if w[0] == "after" {
			w = w[2:]
		}
	case "removed":
		c.Kind = protocol.BlocksRemoved
		for i, name := range w { // they need not follow one another
			c.Joined = i > 0
			s.named[name].pools[pool] = false
			s.tree.tell(c, s.named[name])
		}
		return
	case "tier", "back":
		c.Kind, c.Tier = protocol.TierChanged, messages.Secondary
		if kind == "back" {
			c.Tier = messages.Primary
		}
		w = w[:1]
	case "priority":
		c.Kind = protocol.PriorityChanged
		s.scan(w[1], &c.OldPriority)
		s.scan(w[2], &c.Priority)
		w = w[:1]
	}
	var blocks []*block
	for _, name := range w {
		b := s.named[name]
		blocks = append(blocks, b)
		b.pools[pool], b.tiers[pool] = true, c.Tier
		if c.Kind != protocol.TierChanged {
			b.priority = c.Priority
		}
	}
	s.tree.tell(c, blocks...)
}

// enter makes the blocks of a line that are not there.
func (s *script) enter(w []string) {
	var before *block
	for i, name := range w {
		if name == "after" {
			continue
		}
		b := s.named[name]
		if b == nil && i > 0 && w[i-1] == "after" {
			s.t.Fatalf("no block %s", name)
		}
		if b == nil {
			tokens := make([]messages.Token, testTokens)
			tokens[0] = messages.Token(len(s.words))
			b = s.tree.enter(entering{parent: before, tokens: tokens})[0]
			s.named[name] = b
			s.words = append(s.words, short(b.name()), name)
		}
		before = b
	}
}

func (s *script) scan(word string, into any) {
	if _, err := fmt.Sscan(word, into); err != nil {
		s.t.Fatalf("%q: %v", word, err)
	}
}
