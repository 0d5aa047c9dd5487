package events

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// testTokens is how many tokens a block has in tests.
const testTokens = 3

// hash makes a short name for a block.
func hash(b ...byte) (h kvevents.Hash) {
	copy(h[:], b)
	return h
}

// spell is the name of a block, written out: the namespace, then block by block.
func spell(ns messages.Namespace, blocks ...[]byte) kvevents.Hash {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(ns.Salt)))
	b = append(b, ns.Salt...)
	sum := sha256.Sum256(b)
	for _, block := range blocks {
		sum = sha256.Sum256(append(sum[:16:16], block...))
	}
	return kvevents.Hash(sum[:16])
}

// block is a block of a forest.
type block struct {
	id     protocol.BlockID
	parent *block
	behind int // blocks that follow it in the forest
	ns     messages.Namespace
	tokens []messages.Token // without padding
	covers []messages.Cover // by token; nil without an item
	text   []byte           // what is hashed of it
	pools  [2]bool          // holds it
	tiers  [2]messages.Tier // where, if it does
	// priority is that of its last store or change.
	priority messages.Priority
}

// texts are those of all blocks up to b.
func (b *block) texts() [][]byte {
	var out [][]byte
	for ; b != nil; b = b.parent {
		out = append(out, b.text)
	}
	slices.Reverse(out)
	return out
}

// stored is b in a stored event.
func (b *block) stored(tier messages.Tier, priority messages.Priority) kvevents.StoredBlock {
	return kvevents.StoredBlock{Hash: b.name(), Tokens: b.tokens, Tier: tier, Priority: priority,
		Covers: b.covers}
}

// storedEvent is an event whose first block is b, without its blocks.
func (b *block) storedEvent(p messages.PoolID) kvevents.Event {
	e := kvevents.Event{Type: kvevents.EventStored, Pool: p}
	switch {
	case b.parent != nil:
		e.Parent, e.HasParent = b.parent.name(), true
	case b.ns != (messages.Namespace{}):
		e.Namespace = &b.ns
	}
	return e
}

// name is the right hash of b.
func (b *block) name() kvevents.Hash { return spell(b.ns, b.texts()...) }

// forest is a tree as events know it: it changes, and says so like a real one.
type forest struct {
	changes protocol.Changes
	used    []bool // by block id
	blocks  []*block
}

// free returns an id that no block has: the lowest, so that ids are used again.
func (f *forest) free() protocol.BlockID {
	i := slices.Index(f.used, false)
	if i < 0 {
		i = len(f.used)
		f.used = append(f.used, false)
	}
	f.used[i] = true
	return protocol.BlockID(i)
}

// entering is blocks that enter the forest.
type entering struct {
	parent  *block // nil: none
	ns      messages.Namespace
	tokens  []messages.Token // of all blocks
	covers  []messages.Cover // by token, or nil
	padding int
}

// enter adds blocks behind parent, and returns them.
func (f *forest) enter(e entering) []*block {
	return f.enterAs(&f.changes, e, nil)
}

// enterAs is enter into a record; known are the blocks if they are there already.
func (f *forest) enterAs(c *protocol.Changes, e entering, known []*block) []*block {
	made := known
	parent := e.parent
	if parent != nil {
		e.ns = parent.ns
	}
	size := min(testTokens, len(e.tokens))
	for from := 0; from < len(e.tokens) && known == nil; from += size {
		b := &block{id: f.free(), parent: parent, ns: e.ns,
			tokens: e.tokens[from:min(from+size, len(e.tokens)-e.padding)]}
		if e.covers != nil {
			if covers := e.covers[from:][:len(b.tokens)]; slices.ContainsFunc(covers,
				func(c messages.Cover) bool { return c.Covered }) {
				b.covers = covers
			}
		}
		for i, tok := range e.tokens[from : from+size] {
			if e.covers == nil || !e.covers[from+i].Covered {
				b.text = binary.LittleEndian.AppendUint32(b.text, uint32(tok))
				continue
			}
			cover := e.covers[from+i]
			b.text = binary.LittleEndian.AppendUint32(b.text, uint32(tok)|1<<31)
			b.text = binary.LittleEndian.AppendUint32(append(b.text, cover.Hash[:]...),
				uint32(cover.Position))
		}
		if parent != nil {
			parent.behind++
		}
		made, parent = append(made, b), b
		f.blocks = append(f.blocks, b)
	}
	change := protocol.Change{
		Kind: protocol.BlocksEntered, Last: made[len(made)-1].id, Count: int32(len(made)),
		Parent: protocol.NoBlock,
		Tokens: int32(len(e.tokens)), Padding: int32(e.padding), Covered: e.covers != nil,
	}
	if e.parent != nil {
		change.Parent = e.parent.id
	} else {
		c.Namespaces = append(c.Namespaces, e.ns)
	}
	for _, b := range made {
		c.Blocks = append(c.Blocks, b.id)
	}
	c.Tokens, c.Covers = append(c.Tokens, e.tokens...), append(c.Covers, e.covers...)
	c.List = append(c.List, change)
	return made
}

// tell records a change of blocks that follow one another.
func (f *forest) tell(c protocol.Change, blocks ...*block) {
	c.Last, c.Count = blocks[len(blocks)-1].id, int32(len(blocks))
	f.changes.List = append(f.changes.List, c)
}

// leave removes a block that nothing follows.
func (f *forest) leave(b *block) {
	f.tell(protocol.Change{Kind: protocol.BlocksLeft}, b)
	f.used[b.id] = false
	f.blocks = slices.DeleteFunc(f.blocks, func(o *block) bool { return o == b })
	if b.parent != nil {
		b.parent.behind--
	}
}

// log tells a log all that has changed.
func (f *forest) log(l *Log) {
	l.Append(&f.changes)
	f.changes = protocol.Changes{}
}

// keys are all blocks and keys of the forest, as a tree answers a snapshot.
func (f *forest) keys() *protocol.Changes {
	c := &protocol.Changes{}
	for _, b := range f.blocks { // parents come first
		e := entering{parent: b.parent, ns: b.ns}
		for i := 0; i < len(b.text); i += 4 {
			tok := binary.LittleEndian.Uint32(b.text[i:])
			cover := messages.Cover{}
			if tok>>31 == 1 {
				cover = messages.Cover{Covered: true, Hash: [32]byte(b.text[i+4 : i+36]),
					Position: int(binary.LittleEndian.Uint32(b.text[i+36:]))}
				i += 36
			}
			e.tokens, e.covers = append(e.tokens, messages.Token(tok&^(1<<31))), append(e.covers, cover)
		}
		e.padding = len(e.tokens) - len(b.tokens)
		f.enterAs(c, e, []*block{b})
		for p, held := range b.pools {
			if held {
				c.List = append(c.List, protocol.Change{
					Kind: protocol.BlocksStored, Pool: messages.PoolID(p), Last: b.id, Count: 1, Tier: b.tiers[p],
					Priority: b.priority,
				})
			}
		}
	}
	return c
}

// one adds a block of its own with a token, stores it in pool 0 and returns it.
func (f *forest) one(tok messages.Token) *block {
	b := f.enter(entering{tokens: []messages.Token{tok, 0, 0}})[0]
	f.tell(protocol.Change{Kind: protocol.BlocksStored, Priority: messages.DefaultPriority}, b)
	b.pools[0], b.priority = true, messages.DefaultPriority
	return b
}

// take reads a log like a reader.
func take(t require.TestingT, l *Log, id kvevents.ReaderID) kvevents.EventBatch {
	batch, err := l.Take(id)
	require.NoError(t, err)
	return batch
}

// snapshot starts a reader again from the keys of forests.
func snapshot(
	t require.TestingT, l *Log, id kvevents.ReaderID, records ...*protocol.Changes,
) kvevents.EventBatch {
	batch, err := l.Snapshot(id, records...)
	require.NoError(t, err)
	return batch
}

func newLog(limit int) *Log { return New(Config{Limit: limit, Engine: "e"}) }
