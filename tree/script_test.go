package tree

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// script is one conversation with a tree; time stands still but for "wait".
type script struct {
	tree *Tree
	log  *events.Log
	now  time.Duration
}

func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(*testing.T) scripttest.Serve {
		var s script
		return func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			require.NoError(t, s.tree.Check())
			return out
		}
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "tree":
		c := Config{TokensPerBlock: scripttest.Number(t, d, "tpb", 4), Events: d.HasArg("events"),
			Host: d.HasArg("host")}
		sinks := scripttest.Numbers(t, d, "sinks")
		for p, w := range scripttest.Numbers(t, d, "windows") {
			shape := PoolShape{Window: w, Cross: p >= scripttest.Number(t, d, "cross", p+1)}
			if p < len(sinks) {
				shape.Sink = sinks[p]
			}
			c.Pools = append(c.Pools, shape)
		}
		s.tree, s.log = New(c), events.New(events.Config{})
		if c.Events {
			s.log = events.New(events.Config{Limit: 1000})
		}
		return s.tree.String()
	case "draw":
		return s.tree.String()
	case "match":
		return s.match(t, d)
	case "forget":
		return s.forget(t, d)
	case "contents":
		return s.contents()
	case "snapshot":
		var snap protocol.Snapshot
		s.tree.Snapshot(&snap)
		var w strings.Builder
		s.keys(t, &w, snap.Keys)
		return w.String()
	}
	a := protocol.Apply{Now: s.now}
	switch d.Cmd {
	case "store":
		a.Stores = append(a.Stores, s.store(t, d))
	case "move":
		p := scripttest.Number(t, d, "pool", 0)
		var to string
		d.ScanArgs(t, "to", &to)
		a.Moves = append(a.Moves, protocol.BlockMove{Pool: messages.PoolID(p), Block: s.blockAt(t, d),
			To: place1(t, to)})
	case "takeover":
		a.Takeovers = append(a.Takeovers, s.blockAt(t, d))
	case "claim":
		m := s.find(t, d)
		a.Claims = append(a.Claims, protocol.ClaimItem{
			Blocks: m.IDs, Source: m.Source.Block, Session: word(t, d, "session"),
			Retention: retentionOf(t, d), Prompt: len(m.Tokens),
		})
	case "wait":
		s.now += time.Duration(scripttest.Number(t, d, "ms", 0)) * time.Millisecond
		a.Now = s.now
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	s.tree.Apply(&a)
	return s.told(a.Effects)
}

// told prints what a message caused, and the picture after it.
func (s *script) told(effects []protocol.Effect) string {
	var w strings.Builder
	names := []string{"attach", "detach", "reprioritize", "appraise", "host yield", "host forget",
		"host reprioritize", "host attach", "host appraise", "follow"}
	for _, e := range effects {
		fmt.Fprintf(&w, "effect %s: pool %d depth %d blocks %d", names[e.Kind], e.Pool, e.Depth,
			len(e.Blocks))
		if e.Pages != nil {
			fmt.Fprintf(&w, " pages %v", e.Pages)
		}
		if e.Kind == protocol.Appraise || e.Kind == protocol.HostAppraise {
			fmt.Fprintf(&w, " useless %v\n", e.Useless)
			continue
		}
		if e.Kind != protocol.Detach && e.Kind != protocol.HostForget && e.Kind != protocol.HostYield {
			fmt.Fprintf(&w, " p%d", e.Priority)
		}
		w.WriteByte('\n')
	}
	if s.log.Enabled() {
		logChanges(s.log, s.tree)
		batch, _ := s.log.Take(events.FirstReader)
		s.events(&w, batch.Events)
	}
	w.WriteString(s.tree.String())
	return w.String()
}

// keys prints a snapshot.
func (s *script) keys(t *testing.T, w *strings.Builder, keys *protocol.Changes) {
	batch, err := s.log.Snapshot(events.FirstReader, keys)
	require.NoError(t, err)
	s.events(w, batch.Events)
}

func (s *script) events(w *strings.Builder, list []kvevents.Event) {
	for _, e := range list {
		fmt.Fprintf(w, "event %s: pool %d", e.Type, e.Pool)
		switch {
		case e.Type == kvevents.EventStored:
			if e.HasParent {
				fmt.Fprintf(w, " behind %x", e.Parent[:2])
			}
			for _, b := range e.Blocks {
				fmt.Fprintf(w, " %x%v %s p%d", b.Hash[:2], b.Tokens, b.Tier, b.Priority)
			}
		case e.Type == kvevents.EventRemoved:
			for _, h := range e.Hashes {
				fmt.Fprintf(w, " %x", h[:2])
			}
		case e.TierChanged:
			fmt.Fprintf(w, " %x %s to %s", e.Hash[:2], e.OldTier, e.NewTier)
		case e.Type == kvevents.EventUpdated:
			fmt.Fprintf(w, " %x p%d to p%d", e.Hash[:2], e.OldPriority, e.NewPriority)
		}
		w.WriteByte('\n')
	}
}

// contents lists the blocks as hosts get them.
func (s *script) contents() string {
	var c protocol.Contents
	s.tree.Contents(&c)
	var w strings.Builder
	for i, b := range c.Blocks {
		kind := "decoder"
		if b.Cross {
			kind = "encoder"
		}
		fmt.Fprintf(&w, "%d: behind %d depth %d %s %v at%s\n", i, b.Parent, b.Depth, kind, b.Tokens,
			drawn(b.Pages))
	}
	return w.String()
}

// find matches the tokens of a command.
func (s *script) find(t *testing.T, d *datadriven.TestData) *protocol.MatchItem {
	tokens, items := prompt1(t, d)
	m := protocol.Match{Items: []protocol.MatchItem{{
		Namespace: namespaceOf(t, d), Tokens: tokens, Multimodal: items, Cross: d.HasArg("cross"),
		Limit: scripttest.Number(t, d, "limit", len(tokens)-1), Partial: !d.HasArg("whole"),
	}}}
	s.tree.Match(&m)
	return &m.Items[0]
}

func (s *script) match(t *testing.T, d *datadriven.TestData) string {
	m := s.find(t, d)
	var w strings.Builder
	fmt.Fprintf(&w, "matched %d blocks %d reach %d lacking %t\n", m.Matched, m.Blocks, m.Reach,
		m.Lacking)
	for p, pages := range m.Pages {
		fmt.Fprintf(&w, "pool %d:%s\n", p, drawn(pages))
	}
	if m.Source.Block != protocol.NoBlock {
		fmt.Fprintf(&w, "source: %d of %d tokens behind %t at%s\n", m.Source.Tokens, m.Source.Stored,
			m.Source.HasChildren, drawn(m.Source.Pages))
	}
	return w.String()
}

func (s *script) store(t *testing.T, d *datadriven.TestData) protocol.StoreItem {
	tokens, items := prompt1(t, d)
	s.tree.arena.symbols.acquire(tokens, items)
	i := protocol.StoreItem{
		Namespace: namespaceOf(t, d), Cross: d.HasArg("cross"), Session: word(t, d, "session"),
		Tokens: tokens, From: scripttest.Number(t, d, "from", 0),
		To:        scripttest.Number(t, d, "to", len(tokens)),
		Retention: retentionOf(t, d), Prompt: scripttest.Number(t, d, "prompt", len(tokens)),
		RetentionFrom: scripttest.Number(t, d, "retention-from", 0),
	}
	for p := range s.tree.arena.pools {
		table := []messages.PageID{}
		for _, n := range scripttest.Numbers(t, d, fmt.Sprintf("pages%d", p)) {
			table = append(table, messages.PageID(n))
		}
		i.Tables = append(i.Tables, table)
	}
	return i
}

func (s *script) forget(t *testing.T, d *datadriven.TestData) string {
	f := protocol.Forget{Now: s.now, All: d.HasArg("all")}
	f.Selector.Session, f.Selector.Salt = word(t, d, "session"), word(t, d, "salt")
	if d.HasArg("tokens") {
		tokens, items := prompt1(t, d)
		f.Selector.Prefix = &messages.Prefix{Namespace: namespaceOf(t, d), Tokens: tokens,
			Multimodal: items}
		f.Cross = d.HasArg("cross")
	}
	if d.HasArg("keep") {
		for range s.tree.arena.pools {
			f.Keep = append(f.Keep, nil)
		}
		p := scripttest.Number(t, d, "pool", 0)
		f.Keep[p] = append(f.Keep[p], s.blockAt(t, d))
	}
	s.tree.Forget(&f)
	return fmt.Sprintf("%d blocks\n", f.Blocks) + s.told(f.Effects)
}

// blockAt finds the block that argument pool keeps at argument at or keep.
func (s *script) blockAt(t *testing.T, d *datadriven.TestData) protocol.BlockID {
	at := word(t, d, "at") + word(t, d, "keep")
	p := scripttest.Number(t, d, "pool", 0)
	for b := range s.tree.arena.blocks {
		if id := protocol.BlockID(b); s.tree.arena.alive(id) &&
			s.tree.arena.locations[p][id] == place1(t, at) {
			return id
		}
	}
	t.Fatalf("no block at %s", at)
	return protocol.NoBlock
}

// place1 reads d7, h3 or --.
func place1(t *testing.T, s string) protocol.Location {
	var n int
	switch {
	case s == "--":
		return protocol.Nowhere
	case strings.HasPrefix(s, "d"):
		_, err := fmt.Sscan(s[1:], &n)
		require.NoError(t, err)
		return protocol.OnDevice(messages.PageID(n))
	}
	_, err := fmt.Sscan(s[1:], &n)
	require.NoError(t, err)
	return protocol.OnHost(messages.PageID(n))
}

func drawn(pages []protocol.Location) string {
	var w strings.Builder
	for _, l := range pages {
		switch page, tier, ok := l.Page(); {
		case !ok:
			w.WriteString(" --")
		case tier == messages.Primary:
			fmt.Fprintf(&w, " d%d", page)
		default:
			fmt.Fprintf(&w, " h%d", page)
		}
	}
	return w.String()
}

// namespaceOf reads salt and encoder, the key of an encoder's input.
func namespaceOf(t *testing.T, d *datadriven.TestData) messages.Namespace {
	return messages.Namespace{Salt: word(t, d, "salt"), Encoder: word(t, d, "encoder")}
}

// prompt1 reads tokens=(…), and item=(hash,start,length).
func prompt1(
	t *testing.T, d *datadriven.TestData,
) (tokens []messages.Token, items []messages.MultimodalItem) {
	for _, n := range scripttest.Numbers(t, d, "tokens") {
		tokens = append(tokens, messages.Token(n))
	}
	if v := scripttest.Numbers(t, d, "item"); v != nil {
		items = append(items, messages.MultimodalItem{Hash: [32]byte{byte(v[0])}, Start: v[1],
			Length: v[2]})
	}
	return tokens, items
}

// retentionOf reads range=(start,end,priority,ms) and decode=(priority,ms).
func retentionOf(t *testing.T, d *datadriven.TestData) *messages.Retention {
	var r messages.Retention
	if v := scripttest.Numbers(t, d, "range"); v != nil {
		r.Ranges = append(r.Ranges, messages.RetentionRange{
			Start: v[0], End: v[1], Priority: messages.Priority(v[2]),
			Duration: time.Duration(v[3]) * time.Millisecond,
		})
	}
	if v := scripttest.Numbers(t, d, "decode"); v != nil {
		r.Decode = &messages.DecodeRetention{Priority: messages.Priority(v[0]),
			Duration: time.Duration(v[1]) * time.Millisecond}
	}
	if r.IsZero() {
		return nil
	}
	return &r
}

func word(t *testing.T, d *datadriven.TestData, name string) (s string) {
	d.MaybeScanArgs(t, name, &s)
	return s
}
