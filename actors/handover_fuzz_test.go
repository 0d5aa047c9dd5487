package actors_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/internal/handover"
)

// Lengths and places in a stream, from the drawing in package handover.
const (
	preambleBytes = 48
	frameBytes    = 40
	lengthAt      = 16 // of the body, in a frame's header
	checksumAt    = 24 // of the body
	checkBytes    = 8  // at the end of the preamble and of each header
	pieceBytes    = 128 << 10
)

// frame is one frame of a stream, by its place.
type frame struct{ header, body []byte }

// frames splits a stream behind its preamble. The last body is cut where the stream ends.
func frames(stream []byte) (list []frame) {
	for rest := stream[min(preambleBytes, len(stream)):]; len(rest) >= frameBytes; {
		length := min(binary.LittleEndian.Uint64(rest[lengthAt:]), uint64(len(rest)-frameBytes))
		f := frame{rest[:frameBytes], rest[frameBytes : frameBytes+length]}
		list, rest = append(list, f), rest[frameBytes+length:]
	}
	return list
}

// seal writes the checksums, the numbers of the frames and the digest, as a source would: a
// stream with wrong values then gets as far as the checks of the values.
func seal(stream []byte) {
	check := func(b []byte) {
		n := len(b) - checkBytes
		binary.LittleEndian.PutUint64(b[n:], xxh3.Hash(b[:n]))
	}
	if len(stream) < preambleBytes {
		return
	}
	check(stream[:preambleBytes])
	digest := sha256.New()
	digest.Write(stream[:preambleBytes])
	for i, f := range frames(stream) {
		binary.LittleEndian.PutUint32(f.header[12:], uint32(i))
		if handover.Kind(f.header[0]) == handover.End && len(f.body) == sha256.Size {
			copy(f.body, digest.Sum(nil))
		}
		sum := uint64(0)
		for piece := range slices.Chunk(f.body, pieceBytes) {
			sum = xxh3.HashSeed(piece, sum)
		}
		binary.LittleEndian.PutUint64(f.header[checksumAt:], sum)
		check(f.header)
		digest.Write(f.header)
	}
}

// replaced is a stream in which the body of one frame is another.
func replaced(stream []byte, at int, body []byte) []byte {
	out := bytes.Clone(stream[:preambleBytes])
	for i, f := range frames(stream) {
		header := bytes.Clone(f.header)
		if i != at {
			out = append(append(out, header...), f.body...)
			continue
		}
		binary.LittleEndian.PutUint64(header[lengthAt:], uint64(len(body)))
		out = append(append(out, header...), body...)
	}
	return out
}

// seal leaves a stream of a source as it is: it is the format's own arithmetic.
func TestSealIsThatOfASource(t *testing.T) {
	stream := streamOf(t, limited(8))
	sealed := bytes.Clone(stream)
	seal(sealed)
	assert.Equal(t, stream, sealed)
	assert.Equal(t, stream, replaced(stream, -1, nil))
}

// FuzzImport gives an engine streams that are damaged on purpose, as they are and with
// checksums and digest put right. Whatever comes, the engine is right afterwards, and holds a
// sequence only if there was no error.
func FuzzImport(f *testing.F) {
	for _, s := range []setup{limited(8), {pages: limited(8).pages[:1]}} {
		stream := streamOf(f, s)
		f.Add(stream, false)
		f.Add(stream[:len(stream)/2], false)
		list := frames(stream)
		for at, body := range map[int][]byte{
			0: []byte(`{"Model":"","MaxSeqLen":512,"Pools":null,"Scales":null}`),
			1: []byte(
				`{"Salt":null,"LoRA":null,"HasLoRA":false,"Session":null,"Retention":{"Ranges":[{"Start":-1,"End":9,"Priority":255}]},"Prompt":13,"Computed":13,"Tokens":15,"Items":0,"NoStore":false}`),
			2: bytes.Repeat([]byte{0xff}, len(list[2].body)),
			3: list[3].body[:len(list[3].body)-1],
		} {
			f.Add(replaced(stream, at, body), true)
		}
		for _, attributes := range []string{
			`{"Prompt":13,"Computed":15,"Tokens":15}`,
			`{"Prompt":1,"Computed":13,"Tokens":15,"NoStore":true}`,
			`{"Prompt":15,"Computed":13,"Tokens":15,"Items":1}`,
			`{"Prompt":-1,"Computed":-1,"Tokens":15,"Items":-1}`,
		} {
			f.Add(replaced(stream, 1, []byte(attributes)), true)
		}
	}
	f.Add([]byte("kvho"), false)
	to := newRig(f, limited(8))
	f.Cleanup(to.close)
	f.Fuzz(func(t *testing.T, stream []byte, sealed bool) {
		if sealed {
			stream = bytes.Clone(stream)
			seal(stream)
		}
		m, err := actors.HandoversOf(to.Engine).Import(context.Background(), bytes.NewReader(stream))
		if err == nil {
			require.NoError(t, to.release(arrived(m)))
			require.NoError(t, to.Reset(context.Background()))
		}
		to.unchanged(t)
	})
}
