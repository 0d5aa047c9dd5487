package stores

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/kvactor/kvactor/messages"
)

// Fingerprint identifies a model and the geometry of its pages.
type Fingerprint [32]byte

// Geometry is everything that the bytes of a page depend on, but for the tokens and their
// namespace. The number of pages, the split of memory, policies, quotas and the length of the
// longest sequence are no part of it, and neither is the number of sink tokens: a host that changes
// the sink of a model gives the model another name.
type Geometry struct {
	// Model names the weights, such as a hash of their files. Engines with
	// different weights must not have the same name: their pages have the same shape
	// and different values.
	Model string
	Pools []messages.PoolInfo
	// Ranks is the number of devices that each hold a share of every page, of PageBytes
	// bytes; 0 stands for 1. The page of an object is all shares, one behind the other, so
	// engines that divide a model differently share no objects.
	Ranks int
}

// Fingerprint returns the fingerprint of the geometry.
func (g Geometry) Fingerprint() Fingerprint {
	h := hasher{sha256.New()}
	h.text("kvactor geometry 2")
	h.text(g.Model)
	h.numbers(len(g.Pools))
	for _, p := range g.Pools {
		for _, s := range []string{p.Kind, p.DType, p.Layout} {
			h.text(s)
		}
		h.numbers(p.Window, p.Chunk, p.KVHeads, p.HeadDim, p.ValueDim, p.KVFactor, p.SideBytes,
			p.TokensPerBlock, int(p.PageBytes), len(p.Layers))
		h.numbers(p.Layers...)
	}
	// Only groups have the number: the objects of single devices keep their fingerprints.
	if g.Ranks > 1 {
		h.numbers(g.Ranks)
	}
	return Fingerprint(h.Sum(nil))
}

// hasher writes values to a hash so that different values never make the same bytes.
type hasher struct{ hash.Hash }

func (h hasher) numbers(values ...int) {
	var b [8]byte
	for _, v := range values {
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
}

func (h hasher) text(s string) {
	h.numbers(len(s))
	h.Write([]byte(s))
}

// BlockKey identifies a block: its namespace, and all tokens and items from the start
// of the prompt to its end.
type BlockKey [32]byte

// Space makes the keys and the bodies of one namespace's objects. It is not safe for
// concurrent use.
type Space struct {
	fingerprint Fingerprint
	root        BlockKey
	seal        cipher.AEAD // nil without a salt
	sumKey      []byte      // of the checksum; nil without a salt
	compressor  Compressor

	scratch []byte // of one block's tokens, or of a content that is opened
}

// NewSpace returns the Space of a namespace. compressor may be nil.
func NewSpace(f Fingerprint, n messages.Namespace, compressor Compressor) *Space {
	s := &Space{fingerprint: f, compressor: compressor}
	root := hasher{sha256.New()}
	if n.Salt != "" {
		root.Hash = hmac.New(sha256.New, []byte(n.Salt))
		s.deriveSeal(n.Salt)
	}
	// The version is part of the keys, so that engines of two versions can write to one
	// store: an object that an engine cannot read is never under a key that it looks for.
	root.text("kvactor namespace")
	root.numbers(Version)
	root.Write(f[:])
	lora := 0
	if n.HasLoRA {
		lora = 1
	}
	root.numbers(lora)
	root.text(n.LoRA)
	root.text(n.Encoder)
	if n.Weights != "" {
		root.text(n.Weights)
	}
	s.root = BlockKey(root.Sum(nil))
	return s
}

// deriveSeal makes the keys of the cipher and of the checksum from a salt.
func (s *Space) deriveSeal(salt string) {
	derive := func(purpose string) []byte {
		h := hasher{hmac.New(sha256.New, []byte(salt))}
		h.text(purpose)
		h.Write(s.fingerprint[:])
		return h.Sum(nil)
	}
	block, err := aes.NewCipher(derive("kvactor cipher 1"))
	if err == nil {
		s.seal, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic("stores: AES with a key of 32 bytes: " + err.Error())
	}
	s.sumKey = derive("kvactor checksum 1")
}

// Root returns the key that stands before the first block of a prompt.
func (s *Space) Root() BlockKey { return s.root }

// Next returns the key of the block that follows parent. covers is nil if no item
// covers any of the tokens, else it has one for each.
func (s *Space) Next(parent BlockKey, tokens []messages.Token, covers []messages.Cover) BlockKey {
	b := append(s.scratch[:0], parent[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(tokens)))
	b = appendTokens(b, tokens, covers)
	s.scratch = b
	return sha256.Sum256(b)
}

// Key returns the key of the object of a block's page in a pool.
func (k BlockKey) Key(p messages.PoolID) Key {
	var b [36]byte
	copy(b[:], k[:])
	binary.LittleEndian.PutUint32(b[32:], uint32(p))
	return sha256.Sum256(b[:])
}
