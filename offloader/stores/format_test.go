package stores_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// namespaces are one without and one with a salt: an object of the second is sealed.
var namespaces = map[string]messages.Namespace{"plain": {}, "sealed": {Salt: "secret"}}

func exampleBlock(s *stores.Space) (stores.Block, []byte) {
	covers := []messages.Cover{{}, {Covered: true, Hash: [32]byte{7}, Position: 5}, {}, {}}
	return stores.Block{Parent: s.Root(), Pool: 1, Tokens: []messages.Token{10, 20, 30, 40},
		Covers: covers}, bytes.Repeat([]byte("page"), 64)
}

func TestRoundTrip(t *testing.T) {
	for name, n := range namespaces {
		t.Run(name, func(t *testing.T) {
			space := stores.NewSpace(geometry().Fingerprint(), n, nil)
			block, page := exampleBlock(space)
			body := space.Encode([]byte("before"), block, page)
			require.Equal(t, "before", string(body[:6]))
			body = body[6:]
			assert.Equal(t, name == "plain", bytes.Contains(body, []byte("pagepage")))
			assert.Equal(t, body, space.Encode(nil, block, page), "the same page makes the same object")

			got := make([]byte, len(page))
			reader := stores.NewSpace(geometry().Fingerprint(), n, nil)
			require.NoError(t, reader.Decode(got, bytes.Clone(body), block))
			assert.Equal(t, page, got)

			got, err := reader.Page(bytes.Clone(body), block, len(page))
			require.NoError(t, err)
			assert.Equal(t, page, got)
			assert.Equal(t, len(got), cap(got), "an append does not reach the body")
			_, err = reader.Page(bytes.Clone(body), block, len(page)+1)
			assert.ErrorIs(t, err, stores.ErrOther)
		})
	}
}

// The bytes of an object and its key are those of stores.Version: whoever changes them
// changes the version.
func TestVersionNamesTheFormat(t *testing.T) {
	space := stores.NewSpace(geometry().Fingerprint(), messages.Namespace{}, nil)
	block, page := exampleBlock(space)
	key := space.Next(block.Parent, block.Tokens, block.Covers).Key(block.Pool)
	assert.Equal(t, 3, stores.Version)
	assert.Equal(t, "41aca28c2983ce38a231494c51fc4eae9e01a27558d11cb551fc39bce3fe3a48", key.String())
	assert.Equal(t, "77aafa0d9db260a03f2838e5c44413edb6374601725a84c00ff34008df4f3f5b",
		fmt.Sprintf("%x", sha256.Sum256(space.Encode(nil, block, page))))
}

// An object is made in the buffer that BodyBytes describes, and a plain one without
// anything beside it.
func TestEncodeInABuffer(t *testing.T) {
	for name, n := range namespaces {
		space := stores.NewSpace(geometry().Fingerprint(), n, nil)
		block, page := exampleBlock(space)
		buffer := make([]byte, 0, space.BodyBytes(block, len(page)))
		body := space.Encode(buffer, block, page)
		assert.Len(t, body, cap(buffer), name)
		assert.Same(t, &buffer[:1][0], &body[0], name)
		if name == "plain" {
			assert.Zero(t, testing.AllocsPerRun(10, func() { space.Encode(buffer, block, page) }))
		}
	}
}

// A page that is not compressed is a part of the body: it is not copied.
func TestPageIsPartOfTheBody(t *testing.T) {
	space := stores.NewSpace(geometry().Fingerprint(), namespaces["plain"], nil)
	block, page := exampleBlock(space)
	body := space.Encode(nil, block, page)
	got, err := space.Page(body, block, len(page))
	require.NoError(t, err)
	assert.Same(t, &body[len(body)-len(page)], &got[0])
}

// Who knows the tokens of a block and not the salt finds neither its key nor its
// tokens nor the key of the block before in an object.
func TestSaltHidesTokens(t *testing.T) {
	f := geometry().Fingerprint()
	space := stores.NewSpace(f, namespaces["sealed"], nil)
	block, page := exampleBlock(space)
	body := space.Encode(nil, block, page)
	assert.False(t, bytes.Contains(body, binary.LittleEndian.AppendUint32([]byte{10, 0, 0, 0}, 20)))
	assert.False(t, bytes.Contains(body, block.Parent[:]))
	for _, n := range []messages.Namespace{{}, {Salt: "Secret"}} {
		other := stores.NewSpace(f, n, nil)
		assert.Error(t, other.Decode(make([]byte, len(page)), bytes.Clone(body), block))
	}
}

func TestRefusesWhatIsNotTheBlock(t *testing.T) {
	for name, n := range namespaces {
		space := stores.NewSpace(geometry().Fingerprint(), n, nil)
		block, page := exampleBlock(space)
		body := space.Encode(nil, block, page)
		for what, change := range map[string]func(b *stores.Block){
			"parent": func(b *stores.Block) { b.Parent[3]++ },
			"pool":   func(b *stores.Block) { b.Pool = 0 },
			"token":  func(b *stores.Block) { b.Tokens = []messages.Token{10, 20, 30, 41} },
			"fewer":  func(b *stores.Block) { b.Tokens = b.Tokens[:3] },
			"items":  func(b *stores.Block) { b.Covers = nil },
		} {
			asked := block
			change(&asked)
			assert.ErrorIs(t, space.Decode(make([]byte, len(page)), bytes.Clone(body), asked),
				stores.ErrOther, name, what)
		}
		assert.Error(t, space.Decode(make([]byte, len(page)+1), bytes.Clone(body), block), "longer page")

		other := geometry()
		other.Model = "n"
		foreign := stores.NewSpace(other.Fingerprint(), n, nil)
		assert.ErrorIs(t, foreign.Decode(make([]byte, len(page)), bytes.Clone(body), block),
			stores.ErrForeign)

		for _, version := range []byte{stores.Version - 1, stores.Version + 1} {
			old := bytes.Clone(body)
			old[4] = version
			assert.ErrorIs(t, space.Decode(make([]byte, len(page)), old, block), stores.ErrVersion, name)
		}
	}
}

// Every bit of an object matters: with any of them changed, or with bytes cut off or
// added, it is a miss.
func TestRefusesDamage(t *testing.T) {
	for name, n := range namespaces {
		space := stores.NewSpace(geometry().Fingerprint(), n, nil)
		block, page := exampleBlock(space)
		body := space.Encode(nil, block, page)
		got := make([]byte, len(page))
		for i := range len(body) * 8 {
			damaged := bytes.Clone(body)
			damaged[i/8] ^= 1 << (i % 8)
			if err := space.Decode(got, damaged, block); err == nil {
				assert.Equal(t, page, got, "%s: bit %d", name, i)
				assert.Equal(t, "sealed", name, "bit %d", i)
			}
			damaged = bytes.Clone(body)
			damaged[i/8] ^= 1 << (i % 8)
			if p, err := space.Page(damaged, block, len(page)); err == nil {
				assert.Equal(t, page, p, "%s: bit %d", name, i)
				assert.Equal(t, "sealed", name, "bit %d", i)
			}
		}
		for i := range body {
			assert.Error(t, space.Decode(got, bytes.Clone(body[:i]), block), "%s: cut at %d", name, i)
		}
		assert.Error(t, space.Decode(got, append(bytes.Clone(body), 0), block), name)
	}
}

// FuzzDecode asks for a block with bodies that a fuzzer makes: whatever it is given,
// Decode returns the page that was encoded or an error.
func FuzzDecode(f *testing.F) {
	spaces := []*stores.Space{}
	pages := [][]byte{}
	blocks := []stores.Block{}
	for _, n := range []messages.Namespace{namespaces["plain"], namespaces["sealed"]} {
		space := stores.NewSpace(geometry().Fingerprint(), n, nil)
		block, page := exampleBlock(space)
		spaces, pages, blocks = append(spaces, space), append(pages, page), append(blocks, block)
		f.Add(space.Encode(nil, block, page))
	}
	f.Add([]byte("kvob"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for i, space := range spaces {
			got := make([]byte, len(pages[i]))
			if err := space.Decode(got, bytes.Clone(body), blocks[i]); err == nil &&
				!bytes.Equal(pages[i], got) {
				t.Fatalf("a page that was never written: %x", got)
			}
			if got, err := space.Page(bytes.Clone(body), blocks[i], len(pages[i])); err == nil &&
				!bytes.Equal(pages[i], got) {
				t.Fatalf("a page that was never written: %x", got)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) { benchmark(b, true) }
func BenchmarkDecode(b *testing.B) { benchmark(b, false) }

func benchmark(b *testing.B, encode bool) {
	for name, n := range namespaces {
		b.Run(name, func(b *testing.B) {
			space := stores.NewSpace(geometry().Fingerprint(), n, nil)
			block, _ := exampleBlock(space)
			page := make([]byte, 1<<20)
			body := space.Encode(nil, block, page)
			var buffer []byte
			b.SetBytes(int64(len(page)))
			for b.Loop() {
				if encode {
					buffer = space.Encode(buffer[:0], block, page)
					continue
				}
				buffer = append(buffer[:0], body...)
				if err := space.Decode(page, buffer, block); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
