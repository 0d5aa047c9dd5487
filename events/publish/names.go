package publish

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Naming says what blocks are called on the wire.
type Naming string

// The ways of naming.
const (
	// EngineNames are the last eight bytes of the hashes in the engine's events.
	EngineNames Naming = ""
	// SHA256CBOR is vLLM's --prefix-caching-hash-algo sha256_cbor with the seed that it
	// has if PYTHONHASHSEED is not set. A fleet of both then has one name for one block.
	// vLLM hashes the path of a LoRA adapter too, which Config.LoRAPaths says.
	SHA256CBOR Naming = "sha256_cbor"
)

// digest is the whole hash of a block, of which its name is a part.
type digest [32]byte

// namer names blocks. The name of a block depends on the digest of its parent, so it
// is asked for parents first.
// root returns the digest that stands for the parent of a first block; name returns the
// name of a block and the digest for its children.
type namer interface {
	root() digest
	name(root, b *block) (uint64, digest)
}

func (c *Config) namer() (namer, error) {
	switch c.Naming {
	case EngineNames:
		return engineNamer{}, nil
	case SHA256CBOR:
		return cborNamer{paths: c.LoRAPaths}, nil
	default:
		return nil, refusals.New(messages.ErrConfigInvalid, "naming %q is not %q", string(c.Naming),
			string(SHA256CBOR))
	}
}

// wireName makes a name from the end of a hash. Dynamo takes 0 for a block that exists,
// and others for none, so it is never used; the block that has 1 is told apart from it
// as any two blocks of one name are.
func wireName(hash []byte) uint64 {
	return max(1, binary.BigEndian.Uint64(hash[len(hash)-8:]))
}

// engineNamer takes the end of a hash that the engine has computed already. It needs no
// digests: the engine's hash depends on all tokens before the block, the namespace and
// the items.
type engineNamer struct{}

func (engineNamer) root() digest { return digest{} }

func (engineNamer) name(_, b *block) (uint64, digest) { return wireName(b.hash[:]), digest{} }

// cborNamer hashes [digest of the parent, tokens, extra keys or null] in canonical CBOR.
type cborNamer struct {
	paths map[string]string // of adapters, by name; one without a path has its name for it
}

// noneHashSeed is the seed of vLLM's hashes: since 0.33 it is fixed if no environment variable sets
// it, so names are equal between processes. It is what vLLM hashes in place of a parent's digest.
const noneHashSeed = "vllm-none-hash"

// root hashes the seed as vLLM does: as a text in CBOR, not as bare bytes.
func (cborNamer) root() digest { return sha256.Sum256(appendCBORText(nil, noneHashSeed)) }

// name hashes the block behind the digest of its parent, whose own name was asked for
// before. The name is a part of the digest, but children hash all of it.
func (n cborNamer) name(root, b *block) (uint64, digest) {
	text := appendCBORHead(nil, cborArray, 3)
	text = append(appendCBORHead(text, cborBytes, 32), b.parent.digest[:]...)
	text = appendCBORHead(text, cborArray, len(b.tokens))
	for _, tok := range b.tokens {
		text = appendCBORHead(text, cborUint, int(tok))
	}
	text = n.appendExtraKeys(text, root, b)
	d := digest(sha256.Sum256(text))
	return wireName(d[:]), d
}

// appendExtraKeys writes what else a block's keys and values depend on, in vLLM's
// order: the adapter in each block, the items that cover it, the salt in the first.
func (n cborNamer) appendExtraKeys(text []byte, root, b *block) []byte {
	var keys []byte
	count := 0
	ns := b.namespace
	if ns != nil && ns.HasLoRA {
		path, ok := n.paths[ns.LoRA]
		if !ok {
			// A host that names adapters by their paths needs no table.
			path = ns.LoRA
		}
		keys = appendCBORHead(keys, cborArray, 3)
		keys = appendCBORText(appendCBORText(appendCBORText(keys, "lora"), ns.LoRA), path)
		count++
	}
	for _, item := range itemsOf(b.covers) {
		keys = appendCBORHead(keys, cborArray, 3)
		keys = appendCBORText(appendCBORText(keys, "mm"), item.id)
		if item.offset >= 0 {
			keys = appendCBORHead(keys, cborUint, item.offset)
		} else {
			keys = appendCBORHead(keys, cborNegative, -1-item.offset)
		}
		count++
	}
	// The digest of a parent depends on the salt, so later blocks need not repeat it.
	if ns != nil && ns.Salt != "" && b.parent == root {
		keys = appendCBORHead(keys, cborArray, 2)
		keys = appendCBORText(appendCBORText(keys, "cache_salt"), ns.Salt)
		count++
	}
	// vLLM has None, not an empty tuple, where there are no keys, and the two have other
	// hashes.
	if count == 0 {
		return append(text, cborNull)
	}
	return append(appendCBORHead(text, cborArray, count), keys...)
}

// item is a multimodal item in a block.
type item struct {
	// id is the content hash in hexadecimal.
	id     string
	offset int // of the item's first token from the block's first; negative: before it
	first  int // position in the item of its first token in the block
}

// itemsOf lists the items of a block, in order.
func itemsOf(covers []messages.Cover) []item {
	var items []item
	for i, c := range covers {
		if !c.Covered {
			continue
		}
		// One entry for each item in a block, as vLLM has it, and not for each token.
		// An item goes on as long as the position rises with the token.
		if i > 0 && covers[i-1].Covered && covers[i-1].Hash == c.Hash &&
			covers[i-1].Position == c.Position-1 {
			continue
		}
		items = append(items, item{hex.EncodeToString(c.Hash[:]), i - c.Position, c.Position})
	}
	return items
}

// The first bytes of CBOR values: the major type in the high three bits.
const (
	cborUint     = 0x00
	cborNegative = 0x20
	cborBytes    = 0x40
	cborText     = 0x60
	cborArray    = 0x80
	cborNull     = 0xf6
)

// appendCBORHead writes a type with a number in as few bytes as there can be, as the
// canonical form has it.
func appendCBORHead(b []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, major|27), uint64(n))
	}
}

// appendCBORText writes a text of UTF-8. Its length counts bytes, not characters.
func appendCBORText(b []byte, s string) []byte {
	return append(appendCBORHead(b, cborText, len(s)), s...)
}
