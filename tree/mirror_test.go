package tree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// content is what a mirror knows of one key.
type content struct {
	tier     messages.Tier
	priority messages.Priority
}

// name is a hash in pools of one kind. An encoder's input and a prompt of the same
// tokens have one hash: a key is a hash in a pool.
type name struct {
	kvevents.Hash
	cross bool
}

// nameIn returns what a hash names in pool p.
func (m *mirrors) nameIn(p messages.PoolID, h kvevents.Hash) string {
	return m.names[name{h, m.tree.arena.pools[p].Cross}]
}

// mirrors follow the tree by what it says alone: one by events, one by effects.
type mirrors struct {
	t      require.TestingT
	tree   *Tree
	log    *events.Log
	events []map[kvevents.Hash]content              // by pool; nil: events are off
	names  map[name]string                          // every hash ever seen
	hashes map[string]kvevents.Hash                 // and back
	device []map[messages.PageID]protocol.BlockID   // by pool, by effects and moves
	dprio  []map[messages.PageID]messages.Priority  //
	host   []map[protocol.BlockID]messages.Priority //
	forgot map[[2]int32]bool                        // HostForget of the last message: pool, block
	fronts []fronts                                 // by pool, of states
	// useless is what was told of the pages of a pool, in either tier.
	useless []map[protocol.BlockID]bool
}

func newMirrors(t require.TestingT, tr *Tree) *mirrors {
	m := &mirrors{t: t, tree: tr, log: events.New(events.Config{Limit: math.MaxInt}),
		names: map[name]string{}, hashes: map[string]kvevents.Hash{}}
	for range tr.arena.pools {
		m.events = append(m.events, map[kvevents.Hash]content{})
		m.device = append(m.device, map[messages.PageID]protocol.BlockID{})
		m.dprio = append(m.dprio, map[messages.PageID]messages.Priority{})
		m.host = append(m.host, map[protocol.BlockID]messages.Priority{})
		m.fronts = append(m.fronts, fronts{})
		m.useless = append(m.useless, map[protocol.BlockID]bool{})
	}
	return m
}

// fullOf gives the namespace and all tokens up to the end of a block, padding included.
func fullOf(tr *Tree, b protocol.BlockID) (space, []atom) {
	var full []atom
	for c := b; c != protocol.NoBlock; c = tr.arena.blocks[c].parent {
		full = append(atoms(tr, tr.arena.tokensOf(c)), full...)
	}
	root := &tr.arena.roots[tr.arena.blocks[b].root]
	return space{root.namespace, root.cross}, full
}

func atoms(tr *Tree, tokens []messages.Token) []atom {
	out := make([]atom, len(tokens))
	for i, tok := range tokens {
		out[i].token = tok
		if tok < 0 {
			e := tr.arena.symbols.values[entry(tok)]
			out[i].token = e.token
			out[i].covered, out[i].hash, out[i].position = true, e.hash[0], int(e.position)
		}
	}
	return out
}

// paddingOf is how many tokens of a block lie behind the end of an encoder's
// input, which the key of its namespace lists.
func paddingOf(tr *Tree, b protocol.BlockID, ns space) int {
	if !ns.cross {
		return 0
	}
	length := len(strings.Fields(ns.Encoder))
	return max(0, (int(tr.arena.blocks[b].depth)+1)*tr.arena.tpb-length)
}

// hashOf is the name that events have to give to a block, written out.
func hashOf(tpb int, ns space, full []atom) kvevents.Hash {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(ns.Salt)))
	b = append(b, ns.Salt...)
	if ns.Encoder != "" {
		b = binary.LittleEndian.AppendUint64(append(b, 2), uint64(len(ns.Encoder)))
		b = append(b, ns.Encoder...)
	}
	if ns.HasLoRA {
		b = append(append(b, 1), ns.LoRA...)
	}
	sum := sha256.Sum256(b)
	for block := range slices.Chunk(full, tpb) {
		b = append(b[:0], sum[:16]...)
		for _, a := range block {
			if !a.covered {
				b = binary.LittleEndian.AppendUint32(b, uint32(a.token))
				continue
			}
			b = binary.LittleEndian.AppendUint32(b, uint32(a.token)|1<<31)
			b = append(append(b, a.hash), make([]byte, 31)...)
			b = binary.LittleEndian.AppendUint32(b, uint32(a.position))
		}
		sum = sha256.Sum256(b)
	}
	return kvevents.Hash(sum[:16])
}

// index names every block of the tree, ghosts included.
func (m *mirrors) index() map[string]protocol.BlockID {
	ids := map[string]protocol.BlockID{}
	for b := range m.tree.arena.blocks {
		if !m.tree.arena.alive(protocol.BlockID(b)) {
			continue
		}
		ns, full := fullOf(m.tree, protocol.BlockID(b))
		ids[keyOf(ns, full)] = protocol.BlockID(b)
	}
	return ids
}

// move follows a page by what the coordinator told the tree. What comes back
// from host memory is left to the tree's effect.
func (m *mirrors) move(v protocol.BlockMove, priority messages.Priority) (back bool) {
	_, back = m.host[v.Pool][v.Block]
	now := priority
	for page, b := range m.device[v.Pool] {
		if b == v.Block {
			now = m.dprio[v.Pool][page]
			delete(m.device[v.Pool], page)
			delete(m.dprio[v.Pool], page)
			m.fronts[v.Pool].move(page, v.To)
		}
	}
	delete(m.host[v.Pool], v.Block)
	switch page, tier, ok := v.To.Page(); {
	case ok && tier == messages.Primary && back:
		return true
	case ok && tier == messages.Primary:
		m.device[v.Pool][page], m.dprio[v.Pool][page] = v.Block, now
	case ok:
		m.host[v.Pool][v.Block] = priority
	}
	return false
}

// follow does what the effects say, and checks that they are runs.
func (m *mirrors) follow(effects []protocol.Effect) {
	m.forgot = map[[2]int32]bool{}
	for _, e := range effects {
		if e.Kind == protocol.Follow {
			m.fronts[e.Pool].follow(e.Pages)
			continue
		}
		forDevice := e.Kind <= protocol.Appraise
		require.NotEmpty(m.t, e.Blocks)
		if forDevice {
			require.Len(m.t, e.Pages, len(e.Blocks))
		} else {
			require.Nil(m.t, e.Pages)
		}
		for i, b := range e.Blocks {
			p := e.Pool
			appraises := e.Kind == protocol.Appraise || e.Kind == protocol.HostAppraise
			if e.Kind != protocol.Detach && e.Kind != protocol.HostForget && !appraises && i > 0 &&
				m.tree.arena.alive(b) {
				require.Equal(m.t, e.Blocks[i-1], m.tree.arena.blocks[b].parent, "not one run")
				require.Equal(m.t, e.Depth+int32(i), m.tree.arena.blocks[b].depth)
			}
			switch e.Kind {
			case protocol.Attach:
				require.NotContains(m.t, m.device[p], e.Pages[i])
				m.device[p][e.Pages[i]], m.dprio[p][e.Pages[i]] = b, e.Priority
				m.useless[p][b] = e.Useless
			case protocol.Appraise:
				require.Equal(m.t, b, m.device[p][e.Pages[i]])
				m.appraise(&e, b)
			case protocol.HostAppraise:
				require.Contains(m.t, m.host[p], b)
				m.appraise(&e, b)
			case protocol.Detach:
				require.Equal(m.t, b, m.device[p][e.Pages[i]])
				delete(m.device[p], e.Pages[i])
				delete(m.dprio[p], e.Pages[i])
				m.fronts[p].move(e.Pages[i], protocol.Nowhere)
			case protocol.Reprioritize:
				require.Equal(m.t, b, m.device[p][e.Pages[i]])
				require.NotEqual(m.t, e.Priority, m.dprio[p][e.Pages[i]])
				m.dprio[p][e.Pages[i]] = e.Priority
			case protocol.HostYield:
				require.Contains(m.t, m.host[p], b)
				delete(m.host[p], b)
			case protocol.HostForget:
				delete(m.host[p], b)
				m.forgot[[2]int32{int32(p), int32(b)}] = true
			case protocol.HostReprioritize:
				require.Contains(m.t, m.host[p], b)
				require.NotEqual(m.t, e.Priority, m.host[p][b])
				m.host[p][b] = e.Priority
			}
		}
	}
}

// appraise follows what is told of one page: it is news.
func (m *mirrors) appraise(e *protocol.Effect, b protocol.BlockID) {
	require.NotEqual(m.t, e.Useless, m.useless[e.Pool][b])
	m.useless[e.Pool][b] = e.Useless
}

// sameWorth compares what was told of the pages with the rule: without an end at or behind its
// block a page of tokens is useless, a checkpoint without an end at its block.
func (m *mirrors) sameWorth() {
	t := &m.tree.arena
	needed, ends := map[protocol.BlockID]bool{}, map[protocol.BlockID]bool{}
	for b := range t.walk() {
		ends[b] = !t.cross(b)
		for p := range t.selfPools {
			if t.locations[p][b] == protocol.Nowhere {
				ends[b] = false
			}
			if !t.pools[p].full() || t.pools[p].State {
				continue
			}
			for c := b; c != protocol.NoBlock; c = t.blocks[c].parent {
				if t.locations[p][c] == protocol.Nowhere {
					ends[b] = false
				}
			}
		}
		for c := b; ends[b] && c != protocol.NoBlock; c = t.blocks[c].parent {
			needed[c] = true
		}
	}
	for b := range t.walk() {
		for p := range t.pools {
			if t.locations[p][b] == protocol.Nowhere {
				continue
			}
			useless := !needed[b]
			if t.pools[p].State {
				useless = !ends[b]
			}
			useless = useless && t.selfPools > 1 && !t.cross(b)
			require.Equal(m.t, useless, m.useless[p][b], "pool %d is told that block %d is useless", p, b)
		}
	}
}

// told returns the events of what the tree has changed.
func (m *mirrors) told() []kvevents.Event {
	if c := m.tree.TakeChanges(); c != nil {
		m.log.Append(c)
	}
	batch, err := m.log.Take(events.FirstReader)
	require.NoError(m.t, err)
	return m.named(batch)
}

// named is the events of a batch.
func (m *mirrors) named(batch kvevents.EventBatch) []kvevents.Event {
	require.NoError(m.t, m.log.Check())
	return batch.Events
}

// listen does what the events say. keys names the blocks that are in the tree.
func (m *mirrors) listen(list []kvevents.Event, keys map[string]protocol.BlockID) {
	for key, b := range keys {
		ns, full := fullOf(m.tree, b)
		h := hashOf(m.tree.arena.tpb, ns, full)
		if old, ok := m.names[name{h, ns.cross}]; ok {
			require.Equal(m.t, old, key, "a hash has two meanings")
		}
		if old, ok := m.hashes[key]; ok {
			require.Equal(m.t, old, h, "a block has two hashes")
		}
		m.names[name{h, ns.cross}], m.hashes[key] = key, h
	}
	for _, e := range list {
		switch e.Type {
		case kvevents.EventStored:
			parent := e.Parent
			for i, s := range e.Blocks {
				require.NotContains(m.t, m.events[e.Pool], s.Hash, "stored twice")
				m.events[e.Pool][s.Hash] = content{s.Tier, s.Priority}
				id, ok := keys[m.nameIn(e.Pool, s.Hash)]
				require.True(m.t, ok, "stored a block that is not there")
				ns, full := fullOf(m.tree, id)
				full = full[(len(full)-1)/m.tree.arena.tpb*m.tree.arena.tpb:]
				require.Len(m.t, s.Tokens, len(full)-paddingOf(m.tree, id, ns))
				for k, tok := range s.Tokens {
					require.Equal(m.t, full[k].token, tok)
				}
				before := m.tree.arena.blocks[id].parent
				require.Equal(m.t, before != protocol.NoBlock, e.HasParent || i > 0)
				if before != protocol.NoBlock {
					ns, full := fullOf(m.tree, before)
					require.Equal(m.t, hashOf(m.tree.arena.tpb, ns, full), parent)
				}
				parent = s.Hash
			}
		case kvevents.EventRemoved:
			for _, h := range e.Hashes {
				require.Contains(m.t, m.events[e.Pool], h)
				delete(m.events[e.Pool], h)
			}
		case kvevents.EventUpdated:
			c, ok := m.events[e.Pool][e.Hash]
			require.True(m.t, ok, "update of an unknown key")
			if e.TierChanged {
				require.Equal(m.t, e.OldTier, c.tier)
				require.NotEqual(m.t, e.OldTier, e.NewTier)
				c.tier = e.NewTier
			} else {
				require.Equal(m.t, e.OldPriority, c.priority)
				require.NotEqual(m.t, e.OldPriority, e.NewPriority)
				c.priority = e.NewPriority
			}
			m.events[e.Pool][e.Hash] = c
		case kvevents.EventCleared:
			for p := range m.events {
				require.Empty(m.t, m.events[p])
			}
		default:
			require.Fail(m.t, "event", e.Type)
		}
	}
}

// agree requires that tree, mirrors and oracle hold the same.
func (m *mirrors) agree(o *oracle, keys map[string]protocol.BlockID) {
	want, wantDevice, wantHost := []string{}, []string{}, []string{}
	for _, b := range o.blocks {
		id, ok := keys[b.key()]
		require.True(m.t, ok, "the tree lacks %s", b.key())
		for p, l := range b.places {
			page, tier, held := l.Page()
			require.Equal(m.t, l, m.tree.arena.locations[p][id], "%s in pool %d", b.key(), p)
			if !held {
				continue
			}
			want = append(want, fmt.Sprint(p, b.key(), tier, b.priority))
			if tier == messages.Primary {
				wantDevice = append(wantDevice, fmt.Sprint(p, page, id, b.priority))
			} else {
				wantHost = append(wantHost, fmt.Sprint(p, id, b.priority))
			}
		}
		end, timed := m.tree.arena.timers.of(id)
		require.Equal(m.t, b.timed, timed)
		if timed {
			require.Equal(m.t, b.end, end)
		}
		session := ""
		if s := m.tree.arena.blocks[id].session; s != none {
			session = m.tree.arena.sessions.values[s]
		}
		require.Equal(m.t, b.session, session, b.key())
	}
	require.Equal(m.t, o.fronts(), m.fronts)
	require.Equal(m.t, len(o.blocks), m.tree.Blocks())
	for key := range keys {
		behind := slices.ContainsFunc(o.blocks, func(b *oblock) bool {
			return b.key() == key || len(b.key()) > len(key) && b.key()[:len(key)+1] == key+" "
		})
		require.True(m.t, behind, "ghost %s has nothing behind it", key)
	}
	m.same(want, wantDevice, wantHost)
	m.sameWorth()
}

// same compares the mirrors' keys with lists of what they should hold.
func (m *mirrors) same(want, wantDevice, wantHost []string) {
	got, gotDevice, gotHost := []string{}, []string{}, []string{}
	for p := range m.events {
		for h, c := range m.events[p] {
			got = append(got, fmt.Sprint(p, m.nameIn(messages.PoolID(p), h), c.tier, c.priority))
		}
	}
	for p := range m.device {
		for page, b := range m.device[p] {
			gotDevice = append(gotDevice, fmt.Sprint(p, page, b, m.dprio[p][page]))
		}
		for b, priority := range m.host[p] {
			gotHost = append(gotHost, fmt.Sprint(p, b, priority))
		}
	}
	for _, l := range [][]string{want, wantDevice, wantHost, got, gotDevice, gotHost} {
		slices.Sort(l)
	}
	if m.events != nil {
		require.Equal(m.t, want, got, "keys by events")
	}
	require.Equal(m.t, wantDevice, gotDevice, "device pages by effects")
	require.Equal(m.t, wantHost, gotHost, "host contents by effects")
}

// forgotElsewhere are HostForgets of blocks that are not among those given.
func (m *mirrors) forgotElsewhere(given []protocol.BlockID) (other []protocol.BlockID) {
	for k := range m.forgot {
		if !slices.Contains(given, protocol.BlockID(k[1])) {
			other = append(other, protocol.BlockID(k[1]))
		}
	}
	return other
}
