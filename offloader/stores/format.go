package stores

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor/messages"
)

// Version is the version of the format of objects. Objects of another version are
// misses. Version 1 had two CRCs as its checksum, version 2 the length of the longest
// sequence in its fingerprint.
const Version = 3

// What is wrong with an object that Decode refuses.
var (
	ErrVersion = errors.New("object of another version")       // or no object at all
	ErrForeign = errors.New("object of another model")         // the fingerprint differs
	ErrCorrupt = errors.New("object is damaged")               // the checksum or a length is wrong
	ErrOther   = errors.New("object of another block or pool") // as whole as it may be
)

const (
	magic       = "kvob"
	headerBytes = 72
	sumOffset   = 40

	flagSealed     = 1
	flagCompressed = 2

	contentFields = 16 // bytes of pool, tokens, covers and page length in a content
	tokenBytes    = 4
	coverBytes    = 41
)

// Compressor makes page bytes shorter. It is not safe for concurrent use.
type Compressor interface {
	// Compress appends the compressed src to dst.
	Compress(dst, src []byte) []byte
	// Decompress writes what Compress was given to dst, which has exactly its
	// length, and fails if it has another.
	Decompress(dst, src []byte) error
}

// Block is what an object says of its page.
type Block struct {
	Parent BlockKey
	Pool   messages.PoolID
	Tokens []messages.Token
	Covers []messages.Cover // nil if no item covers any of the tokens
}

// BodyBytes is the length of the body of a block's object with a page that is not
// compressed. A buffer of this capacity takes any body that Encode makes, unless a
// compressor needs more room while it works.
func (s *Space) BodyBytes(b Block, pageBytes int) int {
	n := headerBytes + len(b.Parent) + contentFields + tokenBytes*len(b.Tokens) +
		coverBytes*len(b.Covers) + pageBytes
	if s.seal != nil {
		n += s.seal.Overhead()
	}
	return n
}

// Encode appends the body of a block's object to dst. A page is compressed if the
// Space has a compressor and it saves at least an eighth.
//
// A dst with room for BodyBytes makes Encode allocate nothing: the page is copied once,
// and its checksum is taken from the copy.
func (s *Space) Encode(dst []byte, b Block, page []byte) []byte {
	dst = slices.Grow(dst, s.BodyBytes(b, len(page)))
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	dst = append(dst, 0, 0)
	dst = append(dst, s.fingerprint[:]...)
	dst = append(dst, make([]byte, headerBytes-sumOffset)...)

	dst = appendContent(dst, b, len(page))
	pageStart := len(dst)
	if s.compressor != nil {
		dst = s.compressor.Compress(dst, page)
		if n := len(dst) - pageStart; n <= len(page)-len(page)/8 {
			dst[start+6] |= flagCompressed
		} else {
			dst = append(dst[:pageStart], page...)
		}
	} else {
		dst = append(dst, page...)
	}
	if s.seal != nil {
		dst[start+6] |= flagSealed
	}
	object := dst[start:]
	sum := s.checksum(object[:sumOffset], object[headerBytes:])
	copy(object[sumOffset:], sum[:])
	if s.seal != nil {
		// The nonce comes from the keyed checksum of what is sealed: it is the same
		// only for the same bytes.
		nonce, content := object[sumOffset:][:s.seal.NonceSize()], object[headerBytes:]
		sealed := s.seal.Seal(content[:0], nonce, content, object[:sumOffset])
		dst = append(dst[:start+headerBytes], sealed...)
	}
	return dst
}

// appendContent appends what stands before the page.
func appendContent(dst []byte, b Block, pageBytes int) []byte {
	dst = append(dst, b.Parent[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(b.Pool))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.Tokens)))
	covered := uint32(0)
	if b.Covers != nil {
		covered = 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, covered)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(pageBytes))
	return appendTokens(dst, b.Tokens, b.Covers)
}

// appendTokens appends tokens, and covers if there are any.
func appendTokens(dst []byte, tokens []messages.Token, covers []messages.Cover) []byte {
	for _, t := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	}
	for i := range covers {
		c := &covers[i]
		covered := byte(0)
		if c.Covered {
			covered = 1
		}
		dst = append(dst, covered)
		dst = append(dst, c.Hash[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Position))
	}
	return dst
}

// checksum returns the checksum of an object. Without a salt it is an XXH3 of 128 bits,
// with that of the header as its seed: it finds accidents, and whoever can write to the
// store could forge any checksum that has no key. With a salt it is an HMAC, from which the
// seal gets its nonce.
func (s *Space) checksum(header, content []byte) (sum [32]byte) {
	if s.seal != nil {
		h := hmac.New(sha256.New, s.sumKey)
		h.Write(header)
		h.Write(content)
		return [32]byte(h.Sum(nil))
	}
	hash := xxh3.Hash128Seed(content, xxh3.Hash(header)).Bytes()
	copy(sum[:], hash[:])
	return sum
}

// Decode writes the page of an object to page, which has the length of the pool's
// pages, if body is the object of exactly this block. Otherwise it returns an error
// that wraps one of the Err values, and the bytes of page are undefined. body may be
// changed.
func (s *Space) Decode(page, body []byte, b Block) error {
	payload, compressed, err := s.verify(body, b, len(page))
	if err == nil && compressed {
		return s.decompress(page, payload)
	}
	copy(page, payload)
	return err
}

// Page returns the page of an object, of the length of the pool's pages, under the
// conditions of Decode. A page that is not compressed is returned as a part of body,
// without a copy, so body must not be used again while the page is in use.
func (s *Space) Page(body []byte, b Block, length int) ([]byte, error) {
	payload, compressed, err := s.verify(body, b, length)
	if err != nil || !compressed {
		return payload, err
	}
	page := make([]byte, length)
	if err := s.decompress(page, payload); err != nil {
		return nil, err
	}
	return page, nil
}

// verify returns the bytes that body has of the page of exactly this block. Bytes that
// are not compressed have the length of the page.
func (s *Space) verify(
	body []byte, b Block, length int,
) (payload []byte, compressed bool, err error) {
	content, compressed, err := s.open(body)
	if err != nil {
		return nil, false, err
	}
	expected := appendContent(s.scratch[:0], b, length)
	s.scratch = expected
	if len(content) < len(expected) || !bytes.Equal(content[:len(expected)], expected) {
		return nil, false, ErrOther
	}
	// The capacity ends with the page: nothing that is appended to it reaches the body.
	payload = slices.Clip(content[len(expected):])
	if !compressed && len(payload) != length {
		return nil, false, fmt.Errorf("%w: page of %d bytes, not %d", ErrCorrupt, len(payload), length)
	}
	return payload, compressed, nil
}

// decompress writes the compressed bytes of a page to page.
func (s *Space) decompress(page, payload []byte) error {
	if s.compressor == nil {
		return fmt.Errorf("%w: compressed, and no compressor", ErrVersion)
	}
	if err := s.compressor.Decompress(page, payload); err != nil {
		return fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	return nil
}

// open verifies the header and the checksum, or the seal, and returns the content.
func (s *Space) open(body []byte) (content []byte, compressed bool, err error) {
	if len(body) < headerBytes || string(body[:4]) != magic ||
		binary.LittleEndian.Uint16(body[4:]) != Version {
		return nil, false, ErrVersion
	}
	if !bytes.Equal(body[8:sumOffset], s.fingerprint[:]) {
		return nil, false, ErrForeign
	}
	flags := body[6]
	if flags&^(flagSealed|flagCompressed) != 0 || body[7] != 0 ||
		(flags&flagSealed != 0) != (s.seal != nil) {
		return nil, false, ErrVersion
	}
	sum, content := body[sumOffset:headerBytes], body[headerBytes:]
	if s.seal != nil {
		content, err = s.seal.Open(content[:0], sum[:s.seal.NonceSize()], content, body[:sumOffset])
		if err != nil {
			return nil, false, fmt.Errorf("%w: %v", ErrCorrupt, err)
		}
	} else if expected := s.checksum(body[:sumOffset], content); !bytes.Equal(sum, expected[:]) {
		return nil, false, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	return content, flags&flagCompressed != 0, nil
}
