package actors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
)

// Lengths and places in a stream, from the drawing in package handover.
const (
	headerBytes = 32
	lengthAt    = 8  // of the body, in a header
	checksumAt  = 16 // of the body
	checkAt     = 24 // of the header
	pieceBytes  = 128 << 10
)

// opening is the body of the first message of a stream, and rest what comes behind. The body is
// cut where the stream ends.
func opening(stream []byte) (body, rest []byte) {
	b := stream[min(headerBytes, len(stream)):]
	length := binary.LittleEndian.Uint64(stream[lengthAt:])
	return b[:min(length, uint64(len(b)))], b[min(length, uint64(len(b))):]
}

// seal writes the checksums of the opening and of pages of so many bytes, as a source would: a
// stream with wrong values then gets as far as the checks of the values.
func seal(stream []byte, pages []int) {
	if len(stream) < headerBytes {
		return
	}
	sum := uint64(0)
	add := func(body []byte) {
		for piece := range slices.Chunk(body, pieceBytes) {
			sum = xxh3.HashSeed(piece, sum)
		}
	}
	body, rest := opening(stream)
	add(body)
	binary.LittleEndian.PutUint64(stream[checksumAt:], sum)
	binary.LittleEndian.PutUint64(stream[checkAt:], xxh3.Hash(stream[:checkAt]))
	for _, n := range pages {
		if len(rest) < n+8 {
			return
		}
		add(rest[:n])
		binary.LittleEndian.PutUint64(rest[n:], sum)
		rest = rest[n+8:]
	}
}

// replaced is a stream with another opening.
func replaced(stream, body []byte) []byte {
	_, rest := opening(stream)
	out := bytes.Clone(stream[:headerBytes])
	binary.LittleEndian.PutUint64(out[lengthAt:], uint64(len(body)))
	return append(append(out, body...), rest...)
}

// pagesOf are the lengths of the pages of the stream that limited makes.
func pagesOf(t testing.TB, stream []byte) []int {
	_, rest := opening(stream)
	shape := struct {
		Shape struct{ Pools []messages.PoolInfo }
	}{}
	body, _ := opening(stream)
	require.NoError(t, json.Unmarshal(body, &shape))
	size := int(shape.Shape.Pools[0].PageBytes) // that of all pools
	return slices.Repeat([]int{size}, len(rest)/(size+8))
}

// seal leaves a stream of a source as it is: it is the format's own arithmetic.
func TestSealIsThatOfASource(t *testing.T) {
	stream := streamOf(t, limited(8))
	pages := pagesOf(t, stream)
	body, rest := opening(stream)
	require.Len(t, rest, len(pages)*(pages[0]+8))
	sealed := bytes.Clone(stream)
	seal(sealed, pages)
	assert.Equal(t, stream, sealed)
	assert.Equal(t, stream, replaced(stream, body))
}

// FuzzImport gives an engine streams that are damaged on purpose, as they are and with
// checksums and digest put right. Whatever comes, the engine is right afterwards, and holds a
// sequence only if there was no error.
func FuzzImport(f *testing.F) {
	for _, s := range []setup{limited(8), {pages: limited(8).pages[:1]}} {
		stream := streamOf(f, s)
		f.Add(stream, false)
		f.Add(stream[:len(stream)/2], false)
		body, _ := opening(stream)
		for _, change := range [][2]string{
			{`"Model":""`, `"Model":"m"`},
			{`"Prompt":13`, `"Prompt":1`},
			{`"Prompt":13`, `"Prompt":-1`},
			{`"Computed":13`, `"Computed":15`},
			{`"Items":null`, `"Items":[{"Start":-1,"Length":9223372036854775807}]`},
			{`"NoStore":false`, `"NoStore":true`},
			{`"Tokens":"`, `"Tokens":"/////`},
			{`"Session":""`, `"Session":"","Encoder":"AAAA"`},
			{`"Retention":null`, `"Retention":{"Ranges":[{"Start":-1,"End":9,"Priority":255}]}`},
		} {
			f.Add(replaced(stream, bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)), true)
		}
	}
	f.Add([]byte("kvho"), false)
	pages := pagesOf(f, streamOf(f, limited(8)))
	to := newRig(f, limited(8))
	f.Cleanup(to.close)
	f.Fuzz(func(t *testing.T, stream []byte, sealed bool) {
		if sealed {
			stream = bytes.Clone(stream)
			seal(stream, pages)
		}
		m, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
		if err == nil {
			require.NoError(t, to.release(arrived(m)))
			require.NoError(t, to.Reset(context.Background()))
		}
		to.unchanged(t)
	})
}
