package tree

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kvactor/kvactor/messages"
)

// TakeEvents gives the events caused since the last call, oldest first and
// without ids; they are the caller's. It is nil when events are not recorded.
func (t *Tree) TakeEvents() []messages.Event {
	e := t.log.events
	t.log.events, t.log.floor = nil, 0
	return e
}

// seed is the hash that stands before the first block of a namespace. Lengths
// are hashed too, so no two namespaces write the same bytes.
func (t *Tree) seed(ns messages.Namespace) messages.Hash {
	b := binary.LittleEndian.AppendUint64(t.scratch[:0], uint64(len(ns.Salt)))
	b = append(b, ns.Salt...)
	if ns.Encoder != "" {
		b = binary.LittleEndian.AppendUint64(append(b, 2), uint64(len(ns.Encoder)))
		b = append(b, ns.Encoder...)
	}
	if ns.HasLoRA {
		b = append(append(b, 1), ns.LoRA...)
	}
	t.scratch = b
	sum := sha256.Sum256(b)
	return messages.Hash(sum[:16])
}

// hash chains a block to the hash before it. A covered token is written with
// its sign bit set, its item's hash and its position in it: what the symbol
// means, not its number, which differs from run to run.
func (t *Tree) hash(before messages.Hash, tokens []messages.Token) messages.Hash {
	b := append(t.scratch[:0], before[:]...)
	for _, tok := range tokens {
		if tok >= 0 {
			b = binary.LittleEndian.AppendUint32(b, uint32(tok))
			continue
		}
		e := &t.symbols.entries[entry(tok)]
		b = binary.LittleEndian.AppendUint32(b, uint32(e.token)|1<<31)
		b = append(b, e.hash[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(e.position))
	}
	t.scratch = b
	sum := sha256.Sum256(b)
	return messages.Hash(sum[:16])
}

// chain is the hash before block i of node x; first tells that it is the
// namespace's seed, no block.
func (t *Tree) chain(x, i int32) (h messages.Hash, first bool) {
	if i > 0 {
		return t.blocks.hash[t.ids(x)[i-1]], false
	}
	parent := t.parentOf(x)
	if r := t.nodes[parent].root; r != none {
		return t.roots[r].seed, true
	}
	return t.blocks.hash[t.tail(parent)], false
}

// storedBlock describes block i of node x as pool p keeps it.
func (t *Tree) storedBlock(x, i int32, p int) messages.StoredBlock {
	b := t.ids(x)[i]
	_, tier, _ := t.locations(x, p)[i].Page()
	return messages.StoredBlock{
		Hash:   t.blocks.hash[b],
		Tokens: t.symbols.hosts(t.tokensAt(x, i)),
		Tier:   tier, Priority: t.blocks.priority[b],
	}
}

// storedEvent begins a stored event of pool p with block i of node x.
func (t *Tree) storedEvent(x, i int32, p int) messages.Event {
	e := messages.Event{
		Type: messages.EventStored, Pool: messages.PoolID(p),
		Blocks: []messages.StoredBlock{t.storedBlock(x, i, p)},
	}
	if h, first := t.chain(x, i); !first {
		e.Parent, e.HasParent = h, true
	}
	return e
}

// open is the last event if the message under way may add to it.
func (t *Tree) open(kind messages.EventType, p int) *messages.Event {
	j := &t.log
	if n := len(j.events); n > j.floor {
		if e := &j.events[n-1]; e.Type == kind && int(e.Pool) == p {
			return e
		}
	}
	return nil
}

// tellStored records that pool p, which did not hold block i of node x, does.
func (t *Tree) tellStored(x, i int32, p int) {
	if !t.recording {
		return
	}
	b := t.ids(x)[i]
	e := t.open(messages.EventStored, p)
	if e != nil && t.before(b) == t.log.last {
		e.Blocks = append(e.Blocks, t.storedBlock(x, i, p))
	} else {
		t.log.events = append(t.log.events, t.storedEvent(x, i, p))
	}
	t.log.last = b
}

// tellRemoved records that pool p does not hold b any more.
func (t *Tree) tellRemoved(b messages.BlockID, p int) {
	if !t.recording {
		return
	}
	if e := t.open(messages.EventRemoved, p); e != nil {
		e.Hashes = append(e.Hashes, t.blocks.hash[b])
		return
	}
	t.log.events = append(t.log.events, messages.Event{
		Type: messages.EventRemoved, Pool: messages.PoolID(p), Hashes: []messages.Hash{t.blocks.hash[b]},
	})
}

// tellTier records that pool p keeps b in the other tier now.
func (t *Tree) tellTier(b messages.BlockID, p int, to messages.Tier) {
	if !t.recording {
		return
	}
	t.log.events = append(t.log.events, messages.Event{
		Type: messages.EventUpdated, Pool: messages.PoolID(p), Hash: t.blocks.hash[b],
		TierChanged: true, OldTier: messages.Secondary - to, NewTier: to,
	})
}

// tellPriority records the change from old for pool p.
func (t *Tree) tellPriority(b messages.BlockID, p int, old messages.Priority) {
	if !t.recording {
		return
	}
	t.log.events = append(t.log.events, messages.Event{
		Type: messages.EventUpdated, Pool: messages.PoolID(p), Hash: t.blocks.hash[b],
		OldPriority: old, NewPriority: t.blocks.priority[b],
	})
}
