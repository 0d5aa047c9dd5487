package events

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// hasher makes hashes in a buffer of its own. The buffer is used for every block, so
// a draft allocates one buffer and not one for each block.
type hasher struct{ buffer []byte }

// seed is the hash that stands before the first block of a namespace. Lengths
// are hashed too, so no two namespaces write the same bytes.
func (h *hasher) seed(ns *messages.Namespace) kvevents.Hash {
	b := binary.LittleEndian.AppendUint64(h.buffer[:0], uint64(len(ns.Salt)))
	b = append(b, ns.Salt...)
	if ns.Encoder != "" {
		b = binary.LittleEndian.AppendUint64(append(b, 2), uint64(len(ns.Encoder)))
		b = append(b, ns.Encoder...)
	}
	if ns.Weights != "" {
		b = binary.LittleEndian.AppendUint64(append(b, 3), uint64(len(ns.Weights)))
		b = append(b, ns.Weights...)
	}
	if ns.HasLoRA {
		b = append(append(b, 1), ns.LoRA...)
	}
	return h.sum(b)
}

// block chains a block to the hash before it. A covered token is written with
// its sign bit set, its item's hash and its position in it.
func (h *hasher) block(
	before kvevents.Hash, tokens []messages.Token, covers []messages.Cover,
) kvevents.Hash {
	b := append(h.buffer[:0], before[:]...)
	for i, tok := range tokens {
		if covers == nil || !covers[i].Covered {
			b = binary.LittleEndian.AppendUint32(b, uint32(tok))
			continue
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(tok)|1<<31)
		b = append(b, covers[i].Hash[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(covers[i].Position))
	}
	return h.sum(b)
}

func (h *hasher) sum(b []byte) kvevents.Hash {
	h.buffer = b
	sum := sha256.Sum256(b)
	return kvevents.Hash(sum[:16])
}
