package events

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// spell is the name of a block, written out: the namespace, then block by block.
func spell(ns messages.Namespace, blocks ...[]byte) messages.Hash {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(ns.Salt)))
	b = append(b, ns.Salt...)
	sum := sha256.Sum256(b)
	for _, block := range blocks {
		sum = sha256.Sum256(append(sum[:16:16], block...))
	}
	return messages.Hash(sum[:16])
}

// run is blocks that entered a tree together, and what is known of each.
type run struct {
	naming *protocol.Naming
	ns     messages.Namespace
	texts  [][]byte // of all blocks from the namespace on
	tokens [][]messages.Token
	pools  [2][]bool // by pool and block: is it held
	owned  bool      // its message is over: stored events bring their own tokens
	behind *run      // the run before
	gone   bool      // from the tree
}

// name is the right name of block i.
func (r *run) name(i int) messages.Hash {
	before := len(r.texts) - len(r.tokens)
	return spell(r.ns, r.texts[:before+i+1]...)
}

// namesMachine holds what a log hands out against names that were spelled when
// the events happened: blocks go, their ancestors go, events are lost, readers
// come late and take long.
type namesMachine struct {
	log   *Log
	limit int
	runs  []*run
	all   []messages.Event // named, with ids
	taken int
	slow  *protocol.EventBatch // taken, but not named yet
	want  []messages.Event
}

const testTokens = 3 // of a block

// append hands over what happened, and lets the log settle if nobody is naming.
func (m *namesMachine) append(t *rapid.T, events []protocol.Event, want []messages.Event) {
	for i := range want {
		want[i].ID = uint64(len(m.all))
		m.all = append(m.all, want[i])
	}
	m.log.Append(events)
	if m.slow == nil {
		spoil(m.log.Settle())
		require.LessOrEqual(t, m.log.owed.blocks, m.log.owed.limit)
	}
	for _, r := range m.runs {
		r.owned = true
	}
}

// there are the runs that the tree has.
func (m *namesMachine) there() (runs []*run) {
	for _, r := range m.runs {
		if !r.gone {
			runs = append(runs, r)
		}
	}
	return runs
}

// spoil writes to tokens that are nobody's.
func spoil(spent [][]messages.Token) {
	for _, a := range spent {
		for i := range a {
			a[i] = 1000
		}
	}
}

// bear adds a run behind any block there is, and stores it in some pools.
func (m *namesMachine) bear(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "blocks")
	r := &run{naming: &protocol.Naming{Blocks: int32(n)}}
	if there := m.there(); len(there) == 0 || rapid.Bool().Draw(t, "first") {
		r.ns.Salt = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "salt")
		r.naming.Namespace = &r.ns
	} else {
		p := rapid.SampledFrom(there).Draw(t, "behind")
		r.behind = p
		at := rapid.IntRange(0, len(p.tokens)-1).Draw(t, "at")
		r.naming.After, r.naming.At, r.ns = p.naming, int32(at), p.ns
		r.texts = slices.Clone(p.texts[:len(p.texts)-len(p.tokens)+at+1])
	}
	covered := rapid.IntRange(0, 5).Draw(t, "covered") == 0
	var covers []messages.Cover
	for range n {
		var text []byte
		tokens := rapid.SliceOfN(rapid.Int32Range(0, 9), testTokens, testTokens).Draw(t, "tokens")
		own := make([]messages.Token, 0, testTokens)
		for i, tok := range tokens {
			own = append(own, messages.Token(tok))
			if !covered || i > 0 {
				covers = append(covers, messages.Cover{})
				text = binary.LittleEndian.AppendUint32(text, uint32(tok))
				continue
			}
			c := messages.Cover{Covered: true, Hash: [32]byte{byte(tok)}, Position: int(tok)}
			covers = append(covers, c)
			text = binary.LittleEndian.AppendUint32(text, uint32(tok)|1<<31)
			text = binary.LittleEndian.AppendUint32(append(text, c.Hash[:]...), uint32(tok))
		}
		r.texts, r.tokens = append(r.texts, text), append(r.tokens, own)
		r.naming.Tokens = append(r.naming.Tokens, own...)
	}
	if covered {
		r.naming.Covers = &covers
	}
	r.pools = [2][]bool{make([]bool, n), make([]bool, n)}
	m.runs = append(m.runs, r)
	m.store(t, r)
}

// again stores blocks of a run that was there before.
func (m *namesMachine) again(t *rapid.T) {
	if there := m.there(); len(there) > 0 {
		m.store(t, rapid.SampledFrom(there).Draw(t, "run"))
	}
}

// store tells that pools hold a range of a run's blocks that they lacked.
func (m *namesMachine) store(t *rapid.T, r *run) {
	var events []protocol.Event
	var want []messages.Event
	for p := range r.pools {
		lo := rapid.IntRange(0, len(r.tokens)).Draw(t, "lo")
		hi := lo
		for hi < len(r.tokens) && !r.pools[p][hi] {
			hi++
		}
		if lo == hi {
			continue
		}
		s := protocol.Span{Naming: r.naming, From: int32(lo), Count: int32(hi - lo), Priority: messages.Priority(lo)}
		w := messages.Event{Type: messages.EventStored, Pool: messages.PoolID(p)}
		if before := len(r.texts) - len(r.tokens) + lo; before > 0 {
			w.Parent, w.HasParent = spell(r.ns, r.texts[:before]...), true
		}
		for i := lo; i < hi; i++ {
			r.pools[p][i] = true
			if r.owned {
				s.Tokens = append(s.Tokens, r.tokens[i]...)
			}
			w.Blocks = append(w.Blocks, messages.StoredBlock{Hash: r.name(i), Tokens: r.tokens[i], Priority: s.Priority})
		}
		events = append(events, protocol.Event{Event: messages.Event{Type: w.Type, Pool: w.Pool}, Spans: []protocol.Span{s}})
		want = append(want, w)
	}
	m.append(t, events, want)
}

// remove tells that a pool lacks blocks of a run now, in either order.
func (m *namesMachine) remove(t *rapid.T) {
	there := m.there()
	if len(there) == 0 {
		return
	}
	r := rapid.SampledFrom(there).Draw(t, "run")
	p := rapid.IntRange(0, 1).Draw(t, "pool")
	lo := rapid.IntRange(0, len(r.tokens)-1).Draw(t, "lo")
	hi := lo
	w := messages.Event{Type: messages.EventRemoved, Pool: messages.PoolID(p)}
	for ; hi < len(r.tokens) && r.pools[p][hi]; hi++ {
		r.pools[p][hi] = false
		w.Hashes = append(w.Hashes, r.name(hi))
	}
	if lo == hi {
		return
	}
	s := protocol.Span{Naming: r.naming, From: int32(lo), Count: int32(hi - lo), Backwards: rapid.Bool().Draw(t, "backwards")}
	if s.Backwards {
		slices.Reverse(w.Hashes)
	}
	m.append(t, []protocol.Event{{Event: messages.Event{Type: w.Type, Pool: w.Pool}, Spans: []protocol.Span{s}}}, []messages.Event{w})
}

// update tells of a block's priority.
func (m *namesMachine) update(t *rapid.T) {
	there := m.there()
	if len(there) == 0 {
		return
	}
	r := rapid.SampledFrom(there).Draw(t, "run")
	i := rapid.IntRange(0, len(r.tokens)-1).Draw(t, "block")
	w := messages.Event{Type: messages.EventUpdated, OldPriority: 1, NewPriority: 2}
	e := protocol.Event{Event: w}
	w.Hash = r.name(i)
	e.Spans = []protocol.Span{{Naming: r.naming, From: int32(i), Count: 1}}
	m.append(t, []protocol.Event{e}, []messages.Event{w})
}

// vanish ends the runs that no pool holds and that nothing is behind, if any.
func (m *namesMachine) vanish(t *rapid.T) {
	var gone []*protocol.Naming
	for i := len(m.runs) - 1; i >= 0; i-- {
		r := m.runs[i]
		stays := r.gone || slices.ContainsFunc(m.runs, func(c *run) bool { return !c.gone && c.behind == r })
		for p := range r.pools {
			stays = stays || slices.Contains(r.pools[p], true)
		}
		if !stays && rapid.Bool().Draw(t, "goes") {
			r.gone = true
			gone = append(gone, r.naming)
		}
	}
	if rapid.Bool().Draw(t, "from the first") {
		slices.Reverse(gone)
	}
	m.log.Gone(gone)
	if m.slow == nil {
		spoil(m.log.Settle())
	}
}

// take begins to read; the names come when the reader is ready.
func (m *namesMachine) take(t *rapid.T) {
	m.ready(t)
	from := max(m.taken, len(m.all)-m.limit)
	batch := m.log.Take()
	require.EqualValues(t, from-m.taken, batch.Lost)
	m.slow, m.want = &batch, slices.Clone(m.all[from:])
	m.taken = len(m.all)
}

// ready names what was taken.
func (m *namesMachine) ready(t *rapid.T) {
	if m.slow == nil {
		return
	}
	named, spent := Name(*m.slow)
	spoil(spent)
	require.Len(t, named.Events, len(m.want))
	for i := range m.want {
		require.Equal(t, m.want[i], named.Events[i])
	}
	m.slow = nil
	spoil(m.log.Settle())
}

// snapshot asks for all that is held.
func (m *namesMachine) snapshot(t *rapid.T) {
	m.ready(t)
	var keys []protocol.Event
	want := map[Key]bool{}
	for _, r := range m.runs {
		for p := range r.pools {
			for i, held := range r.pools[p] {
				if held {
					s := protocol.Span{Naming: r.naming, From: int32(i), Count: 1, Tokens: slices.Clone(r.tokens[i]), Tier: messages.Secondary}
					keys = append(keys, protocol.Event{Event: messages.Event{Type: messages.EventStored, Pool: messages.PoolID(p)}, Spans: []protocol.Span{s}})
					want[Key{messages.PoolID(p), r.name(i)}] = true
				}
			}
		}
	}
	batch, spent := Name(m.log.Snapshot(keys))
	spoil(spent)
	m.taken = len(m.all)
	for _, e := range batch.Events {
		require.Equal(t, messages.Secondary, e.Blocks[0].Tier)
		require.True(t, want[Key{e.Pool, e.Blocks[0].Hash}])
	}
	for _, r := range m.runs {
		for p := range r.pools {
			if slices.Contains(r.pools[p], true) {
				require.Nil(t, r.naming.Tokens, "tokens are kept for names that are known")
			}
		}
	}
}

func namesAgainstHistory(t *rapid.T) {
	limit := rapid.IntRange(1, 6).Draw(t, "limit")
	m := &namesMachine{log: New(limit), limit: limit}
	m.log.owed.limit = rapid.IntRange(0, 8).Draw(t, "owed")
	t.Repeat(map[string]func(*rapid.T){
		"bear": m.bear, "bear more": m.bear, "again": m.again, "remove": m.remove, "remove more": m.remove,
		"vanish": m.vanish, "vanish more": m.vanish, "update": m.update, "take": m.take, "ready": m.ready, "snapshot": m.snapshot,
		"": func(t *rapid.T) { require.NoError(t, m.log.Check()) },
	})
	if rapid.Bool().Draw(t, "unread") {
		m.nothingStays(t)
		return
	}
	m.take(t)
	m.ready(t)
}

// nothingStays empties the tree, and lets everything that told of it be lost:
// whatever was not named for a reader comes back, and nothing was hashed for it.
func (m *namesMachine) nothingStays(t *rapid.T) {
	m.ready(t)
	var gone []*protocol.Naming
	for _, r := range m.runs {
		for p := range r.pools {
			for i, held := range r.pools[p] {
				if held {
					s := protocol.Span{Naming: r.naming, From: int32(i), Count: 1}
					m.log.Append([]protocol.Event{{Event: messages.Event{Type: messages.EventRemoved, Pool: messages.PoolID(p)}, Spans: []protocol.Span{s}}})
				}
			}
		}
		if !r.gone {
			gone = append(gone, r.naming)
		}
	}
	m.log.Gone(gone)
	for range m.limit {
		m.log.Append(wrap([]messages.Event{{Type: messages.EventCreated}}))
	}
	spoil(m.log.Settle())
	require.NoError(t, m.log.Check())
	for _, r := range m.runs {
		require.Nil(t, r.naming.Tokens, "tokens that nobody can ask a name of are kept")
	}
}

func TestNamesAgainstHistory(t *testing.T) { rapid.Check(t, namesAgainstHistory) }

func FuzzNames(f *testing.F) { f.Fuzz(rapid.MakeFuzz(namesAgainstHistory)) }
