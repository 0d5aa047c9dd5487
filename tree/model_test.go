package tree

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// runner is a sequence that runs: what it holds of the tree is its symbols.
type runner struct {
	ns      space
	tokens  []messages.Token // with symbols
	full    []atom
	prompt  int
	session string
	cursor  protocol.Cursor
}

// model drives a tree, its oracle and its mirrors with the same random messages.
type model struct {
	*rapid.T
	tree    *Tree
	oracle  oracle
	mirrors *mirrors
	now     time.Duration
	page    messages.PageID // the last that was used
	running []*runner
	work    protocol.Apply
	asked   protocol.Match
	late    *late // reads the events in the mirrors' place
	rare    *rare // does so too
}

func newModel(t *rapid.T) *model {
	shapes := [][]PoolShape{
		{{}},
		{{Window: 3}},
		{{Window: 4}, {}},
		{{Window: 2}, {Window: 5, Sink: 3}},
		{{Window: 6, Sink: 1}, {}, {}},
		{{Chunk: 4}, {}},
		{{Window: 3}, {Chunk: 5}},
		{{}, {Cross: true}},
		{{Window: 3}, {}, {Cross: true}, {Cross: true}},
		{{}, {State: true}},
		{{Window: 3}, {}, {State: true}, {State: true}},
		{{Window: 4, Sink: 2}, {State: true}, {Cross: true}},
		{{State: true}},
		{{State: true}, {State: true}},
		{{State: true}, {Cross: true}},
	}
	m := &model{T: t}
	m.oracle.tpb = rapid.SampledFrom([]int{2, 3, 4}).Draw(t, "tokens per block")
	m.oracle.pools = rapid.SampledFrom(shapes).Draw(t, "pools")
	events := rapid.IntRange(0, 2).Draw(t, "events") > 0
	m.tree = New(Config{TokensPerBlock: m.oracle.tpb, Pools: m.oracle.pools, Events: events,
		Host: true, Follow: true})
	m.mirrors = newMirrors(t, m.tree)
	if !events {
		m.mirrors.events = nil
	}
	return m
}

// ask matches one prompt and compares the answer with the oracle's.
func (m *model) ask(hold bool) (it *protocol.MatchItem, full []atom, want omatch, length int) {
	encodes := m.encodes()
	var ns space
	var tokens []messages.Token
	var items []messages.MultimodalItem
	if encodes {
		ns, tokens, full, length = m.input()
	} else {
		tokens, items, full = m.prompt()
		ns, length = m.decoder(), len(tokens)
	}
	if len(m.asked.Items) == 0 {
		m.asked.Items = make([]protocol.MatchItem, 1)
	}
	it = &m.asked.Items[0]
	it.Namespace, it.Tokens, it.Multimodal, it.KeepSymbols, it.Cross = ns.Namespace, tokens, items,
		hold, ns.cross
	it.Limit = m.int(0, len(tokens), "limit")
	if m.int(0, 1, "limited") == 0 {
		it.Limit = len(tokens) - 1
	}
	it.Partial = m.int(0, 3, "partial") > 0
	if encodes && m.int(0, 3, "as used") > 0 {
		it.Limit, it.Partial = len(tokens), false
	}
	m.tree.Match(&m.asked)
	want = m.oracle.match(ns, full[:it.Limit], it.Partial)
	m.compare(it, full, want)
	return it, full, want, length
}

func (m *model) compare(it *protocol.MatchItem, full []atom, want omatch) {
	require.Equal(m, want.length, it.Matched)
	require.Equal(m, want.length/m.oracle.tpb, it.Blocks)
	require.Equal(m, want.reach, it.Reach, "reach")
	require.Equal(m, want.lacking, it.Lacking, "lacking")
	m.compareStates(it, want)
	for p := range want.pages {
		require.Equal(m, want.pages[p], append([]protocol.Location{}, it.Pages[p]...))
	}
	require.Len(m, it.IDs, it.Blocks)
	for i, b := range it.IDs {
		ns, got := fullOf(m.tree, b)
		require.Equal(m, keyOf(space{it.Namespace, it.Cross}, full[:(i+1)*m.oracle.tpb]), keyOf(ns, got))
	}
	s := &it.Source
	if want.source == nil {
		require.Equal(m, protocol.NoBlock, s.Block)
		return
	}
	ns, got := fullOf(m.tree, s.Block)
	require.Equal(m, want.source.key(), keyOf(ns, got))
	require.Equal(m, want.length%m.oracle.tpb, s.Tokens)
	require.Equal(m, len(got)-m.oracle.start(want.source), s.Stored)
	require.Equal(m, want.source.places, s.Pages)
	behind := slices.ContainsFunc(m.oracle.blocks, func(b *oblock) bool {
		return b.ns == ns && len(b.full) > len(got) && len(got)%m.oracle.tpb == 0 &&
			slices.Equal(b.full[:len(got)], got)
	})
	require.Equal(m, behind, s.HasChildren)
}

// apply sends the work prepared in m.work; oracle and mirrors follow.
func (m *model) apply() {
	m.work.Now = m.now
	m.tree.Apply(&m.work)
	m.mirrors.follow(m.work.Effects)
	require.Empty(m, m.mirrors.forgotElsewhere(m.work.Takeovers))
	require.Equal(m, m.tree.arena.timers.next(), m.work.NextExpiry)
	m.checkAll()
	a := &m.work
	a.Moves, a.Takeovers, a.Claims, a.Stores, a.ReleasedSymbols = a.Moves[:0], a.Takeovers[:0],
		a.Claims[:0], a.Stores[:0], a.ReleasedSymbols[:0]
}

// checkAll checks everything between two messages.
func (m *model) checkAll() {
	require.NoError(m, m.tree.Check())
	keys := m.mirrors.index()
	switch {
	case m.late != nil:
		m.late.note(m, m.tree)
		m.mirrors.events = nil
	case m.rare != nil:
		m.rare.note(m, m.tree)
		m.mirrors.events = nil
	default:
		m.mirrors.listen(m.mirrors.told(), keys)
	}
	m.mirrors.agree(&m.oracle, keys)
}

// Lookup asks and changes nothing.
func (m *model) Lookup(*rapid.T) { m.ask(false) }

// Admit matches, claims or takes over, and starts a sequence.
func (m *model) Admit(*rapid.T) {
	it, full, want, length := m.ask(true)
	r := &runner{ns: space{it.Namespace, it.Cross}, tokens: it.Tokens, full: full, prompt: length,
		session: m.session(), cursor: it.Cursor}
	c := protocol.ClaimItem{Blocks: slices.Clone(it.IDs), Source: it.Source.Block, Session: r.session,
		Retention: m.retention(), Prompt: length}
	m.oracle.expire(m.now)
	source := want.source
	if source != nil && !it.Source.HasChildren && m.int(0, 1, "take over") == 0 {
		m.work.Takeovers = append(m.work.Takeovers, it.Source.Block)
		c.Source = protocol.NoBlock
		source.places = slices.Repeat([]protocol.Location{protocol.Nowhere}, len(source.places))
		m.oracle.sweep()
		source = nil
	}
	m.oracle.claim(r.ns, full, it.Blocks, source, &c, m.now)
	m.work.Claims = append(m.work.Claims, c)
	m.running = append(m.running, r)
	m.apply()
}

// Store offers blocks of one to three sequences, with holes, some of them once more.
func (m *model) Store(*rapid.T) {
	m.oracle.expire(m.now)
	var of []*runner
	var ends []wantEnd
	for range m.int(1, 3, "items") {
		if len(m.running) == 0 {
			break
		}
		r := rapid.SampledFrom(m.running).Draw(m.T, "sequence")
		for range m.generated(r) {
			tok := messages.Token(m.int(0, 1, "token"))
			r.tokens, r.full = append(r.tokens, tok), append(r.full, atom{token: tok})
		}
		to := m.int(1, len(r.tokens), "to")
		if r.ns.cross {
			to = (to + m.oracle.tpb - 1) / m.oracle.tpb * m.oracle.tpb
		}
		s := protocol.StoreItem{
			Namespace: r.ns.Namespace, Cross: r.ns.cross, Session: r.session, Tokens: r.tokens, To: to,
			From:      m.int(0, (to-1)/m.oracle.tpb, "from") * m.oracle.tpb,
			Retention: m.retention(), Prompt: r.prompt,
			RetentionFrom: m.int(0, 3, "retention from"),
			Tables:        m.tables((to + m.oracle.tpb - 1) / m.oracle.tpb),
		}
		if !slices.Contains(of, r) && m.int(0, 3, "cursor") > 0 {
			s.Cursor = r.cursor
		}
		m.handOver(&s)
		m.oracle.store(&s, r.full, m.now)
		end, lacks := m.oracle.findEnd(&s, r.full)
		ends = append(ends, wantEnd{end, lacks})
		m.work.Stores = append(m.work.Stores, s)
		of = append(of, r)
	}
	stores := m.work.Stores
	m.apply()
	for i, r := range of {
		m.compareEnd(&stores[:len(of)][i], ends[i])
		r.cursor = stores[:len(of)][i].Cursor
		if c := r.cursor; m.tree.arena.follows(c) {
			_, full := fullOf(m.tree, c.Block)
			require.Equal(m, r.full[:len(full)], full)
			require.Zero(m, len(full)%m.oracle.tpb)
		}
	}
}

// generated draws how many tokens a sequence generates; an input has no more.
func (m *model) generated(r *runner) int {
	if r.ns.cross {
		return 0
	}
	return m.int(0, 2, "generated")
}

// tables gives fresh pages for n blocks, with windows passed and other holes.
func (m *model) tables(n int) [][]messages.PageID {
	var tables [][]messages.PageID
	for range m.oracle.pools {
		table := make([]messages.PageID, n)
		passed := max(0, m.int(-3, n, "passed"))
		for i := range table {
			m.page++
			table[i] = m.page
			if i < passed || m.int(0, 5, "hole") == 0 {
				table[i] = messages.NoPage
			}
		}
		tables = append(tables, table)
	}
	return tables
}

// Move evicts, drops, brings back and renumbers pages.
func (m *model) Move(*rapid.T) {
	m.oracle.expire(m.now)
	keys := m.mirrors.index()
	back := map[protocol.BlockMove]bool{} // by pool and block: stays where it came
	for range m.int(1, 6, "moves") {
		if len(m.oracle.blocks) == 0 {
			break
		}
		b := rapid.SampledFrom(m.oracle.blocks).Draw(m.T, "block")
		p := m.int(0, len(b.places)-1, "pool")
		at := protocol.BlockMove{Pool: messages.PoolID(p), Block: keys[b.key()]}
		if b.places[p] == protocol.Nowhere || back[at] {
			continue
		}
		m.page++
		to := rapid.SampledFrom([]protocol.Location{
			protocol.Nowhere, protocol.OnDevice(m.page), protocol.OnHost(m.page),
		}).Draw(m.T, "to")
		b.places[p] = to
		v := protocol.BlockMove{Pool: at.Pool, Block: at.Block, To: to}
		m.work.Moves = append(m.work.Moves, v)
		back[at] = m.mirrors.move(v, b.priority)
		m.oracle.sweep()
	}
	m.apply()
}

// End releases the symbols of a sequence.
func (m *model) End(*rapid.T) {
	if len(m.running) == 0 {
		return
	}
	i := m.int(0, len(m.running)-1, "sequence")
	m.oracle.expire(m.now)
	m.work.ReleasedSymbols = append(m.work.ReleasedSymbols, m.running[i].tokens)
	m.running = slices.Delete(m.running, i, i+1)
	m.apply()
}

// Wait makes time pass, so that timers act.
func (m *model) Wait(*rapid.T) {
	m.now += time.Duration(m.int(0, 2500, "ms")) * time.Millisecond
	m.oracle.expire(m.now)
	m.apply()
}

// Forget removes what a selector names.
func (m *model) Forget(*rapid.T) {
	f := protocol.Forget{Now: m.now}
	m.oracle.expire(m.now)
	keys := m.mirrors.index()
	var dies func(*oblock, int) bool
	switch m.int(0, 3, "selector") {
	case 0:
		f.Selector.Session = rapid.SampledFrom([]string{"s", "t"}).Draw(m.T, "session")
		dies = func(b *oblock, _ int) bool { return b.session == f.Selector.Session }
	case 1:
		f.Selector.Salt = "a"
		dies = func(b *oblock, _ int) bool { return b.ns.Salt == "a" }
	case 2:
		tokens, items, full := m.prompt()
		ns := m.decoder()
		if m.encodes() {
			items = nil
			ns, tokens, full, _ = m.input()
		}
		n := len(tokens)
		if len(items) == 0 {
			n = m.int(1, n, "shorter")
		}
		f.Selector.Prefix = &messages.Prefix{Namespace: ns.Namespace, Tokens: tokens[:n],
			Multimodal: items}
		f.Cross = ns.cross
		dies = func(b *oblock, _ int) bool { return shared(b, ns, full[:n]) == n }
	default:
		f.All = true
		f.Keep = make([][]protocol.BlockID, len(m.oracle.pools))
		for _, b := range m.oracle.blocks {
			for p := range b.places {
				if m.int(0, 4, "keep") == 0 {
					f.Keep[p] = append(f.Keep[p], keys[b.key()])
				}
			}
		}
		dies = func(b *oblock, p int) bool { return !slices.Contains(f.Keep[p], keys[b.key()]) }
	}
	want := map[[2]int32]bool{}
	for _, b := range m.oracle.blocks {
		for p := range b.places {
			if b.places[p] != protocol.Nowhere && dies(b, p) {
				b.places[p] = protocol.Nowhere
				want[[2]int32{int32(p), int32(keys[b.key()])}] = true
			}
		}
	}
	dropped := m.oracle.sweep()
	m.tree.Forget(&f)
	require.Equal(m, dropped, f.Blocks)
	changes := m.tree.log.changes.List
	cleared := len(changes) > 0 && changes[len(changes)-1].Kind == protocol.EverythingForgot
	require.Equal(m, f.All && len(m.oracle.blocks) == 0 && m.tree.recording, cleared)
	m.mirrors.follow(f.Effects)
	require.Equal(m, want, m.mirrors.forgot)
	m.checkAll()
}

// Look asks for everything there is, in the three ways there are.
func (m *model) Look(*rapid.T) {
	for p, list := range m.tree.Attached() {
		require.Len(m, list, len(m.mirrors.device[p]))
		for _, at := range list {
			require.Equal(m, at.Block, m.mirrors.device[p][at.Page])
		}
	}
	var s protocol.Snapshot
	m.tree.Snapshot(&s)
	keys := m.mirrors.index()
	fresh := newMirrors(m, m.tree)
	fresh.device, fresh.dprio, fresh.host, fresh.fronts = m.mirrors.device, m.mirrors.dprio,
		m.mirrors.host, m.mirrors.fronts
	fresh.useless = m.mirrors.useless
	if !m.tree.recording {
		require.Empty(m, s.Keys.List)
		fresh.events = nil
	} else {
		batch, err := m.mirrors.log.Snapshot(events.FirstReader, s.Keys)
		require.NoError(m, err)
		list := m.mirrors.named(batch)
		fresh.listen(list, keys)
		// A log that knows no block learns all of it from the snapshot.
		blind := events.Resume(m.mirrors.log, 1)
		batch, err = blind.Snapshot(events.FirstReader, s.Keys)
		require.NoError(m, err)
		require.Equal(m, list, batch.Events)
	}
	fresh.agree(&m.oracle, keys)

	var c protocol.Contents
	m.tree.Contents(&c)
	require.Len(m, c.Blocks, len(keys))
	seen := map[string]bool{}
	prefixes := make([][]atom, len(c.Blocks))
	for i, b := range c.Blocks {
		if b.Parent >= 0 {
			prefixes[i] = slices.Clone(prefixes[b.Parent])
		}
		require.Len(m, prefixes[i], b.Depth*m.oracle.tpb)
		for k, tok := range b.Tokens {
			a := atom{token: tok}
			if b.Covers != nil && b.Covers[k].Covered {
				a.covered, a.hash, a.position = true, b.Covers[k].Hash[0], b.Covers[k].Position
			}
			prefixes[i] = append(prefixes[i], a)
		}
		for b.Cross && len(prefixes[i])%m.oracle.tpb != 0 {
			prefixes[i] = append(prefixes[i], atom{}) // the padding
		}
		key := keyOf(space{b.Namespace, b.Cross}, prefixes[i])
		require.Contains(m, keys, key)
		require.False(m, seen[key])
		seen[key] = true
		l := protocol.Locate{Blocks: []protocol.BlockID{keys[key]}}
		m.tree.Locate(&l)
		for p := range b.Pages {
			require.Equal(m, l.Pages[p][0], b.Pages[p])
		}
	}
}
