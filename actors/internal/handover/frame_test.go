package handover_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/internal/handover"
	"github.com/kvactor/kvactor/offloader/stores"
)

const (
	preambleBytes = 48
	headerBytes   = 40
)

// page is a stream of a preamble and the frame of one page.
func page(t *testing.T, body []byte) []byte {
	var stream bytes.Buffer
	w := handover.NewWriter(&stream)
	require.NoError(t, w.Begin(stores.Fingerprint{1, 2, 3}, true))
	header := handover.Header{Kind: handover.Page, Pool: 1, Block: 7}
	require.NoError(t, w.Page(header, body))
	require.EqualValues(t, stream.Len(), w.Bytes())
	return stream.Bytes()
}

// A damaged header is found without a byte behind it: a reader that believed its length
// would wait for bytes that the source never writes, while the source waits for an answer.
func TestDamagedHeaderIsFoundBeforeItsBody(t *testing.T) {
	stream := page(t, []byte("contents"))
	for bit := range 8 * headerBytes {
		damaged := bytes.Clone(stream[:preambleBytes+headerBytes])
		damaged[preambleBytes+bit/8] ^= 1 << (bit % 8)
		r := handover.NewReader(bytes.NewReader(damaged))
		_, _, err := r.Begin()
		require.NoError(t, err)
		_, err = r.Next()
		require.ErrorIs(t, err, handover.ErrCorrupt, "bit %d of the header", bit)
	}
}

// A damaged body is found by its checksum, wherever the damage is.
func TestDamagedBodyIsFound(t *testing.T) {
	body := make([]byte, 300<<10) // several pieces
	for i := range body {
		body[i] = byte(i*7 + i>>16)
	}
	stream := page(t, body)
	for _, at := range []int{0, 1, 128<<10 - 1, 128 << 10, 256 << 10, len(body) - 1} {
		damaged := bytes.Clone(stream)
		damaged[preambleBytes+headerBytes+at] ^= 1
		assert.ErrorIs(t, read(damaged, body), handover.ErrCorrupt, "byte %d", at)
	}
	swapped := bytes.Clone(stream)
	pieces := swapped[preambleBytes+headerBytes:]
	first := bytes.Clone(pieces[:128<<10])
	copy(pieces, pieces[128<<10:256<<10])
	copy(pieces[128<<10:], first)
	assert.ErrorIs(t, read(swapped, body), handover.ErrCorrupt, "two pieces in the wrong order")
	assert.NoError(t, read(stream, body))
}

// read reads a stream of one page and compares its body.
func read(stream, want []byte) error {
	r := handover.NewReader(bytes.NewReader(stream))
	if _, _, err := r.Begin(); err != nil {
		return err
	}
	h, err := r.Next()
	if err != nil {
		return err
	}
	body := make([]byte, h.Length)
	if err := r.Body(body); err != nil {
		return err
	}
	if !bytes.Equal(body, want) {
		return errors.New("another body")
	}
	return nil
}

// Streams of other versions are refused by their version, whatever checksum they have.
func TestOtherVersionsAreRefusedByName(t *testing.T) {
	stream := page(t, nil)
	for version, want := range map[uint16]string{
		1: "format version 1, this engine reads version 2",
		2: "",
		3: "format version 3, this engine reads version 2",
	} {
		other := bytes.Clone(stream[:preambleBytes])
		binary.LittleEndian.PutUint16(other[4:], version)
		handover.SealPreamble(other)
		_, _, err := handover.NewReader(bytes.NewReader(other)).Begin()
		if want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorIs(t, err, handover.ErrVersion)
		assert.ErrorContains(t, err, want)
	}
	// Version 1 had a checksum of another kind.
	other := bytes.Clone(stream[:preambleBytes])
	other[4] = 1
	_, _, err := handover.NewReader(bytes.NewReader(other)).Begin()
	assert.ErrorIs(t, err, handover.ErrVersion)
	// A version that the checksum does not cover is damage.
	other[4] = 3
	_, _, err = handover.NewReader(bytes.NewReader(other)).Begin()
	assert.ErrorIs(t, err, handover.ErrCorrupt)
}

// Pages of all sizes come as they were.
func TestPagesComeAsTheyWere(t *testing.T) {
	var stream bytes.Buffer
	w := handover.NewWriter(&stream)
	var bodies [][]byte
	for i, size := range []int{0, 1, 100, 128 << 10, 128<<10 + 1, 1 << 20, 3 << 20, 5, 700 << 10,
		700 << 10} {
		bodies = append(bodies, bytes.Repeat([]byte{byte(i + 1)}, size))
		require.NoError(t, w.Page(handover.Header{Kind: handover.Page, Block: uint32(i)}, bodies[i]))
	}
	r := handover.NewReader(&stream)
	for i, want := range bodies {
		h, err := r.Next()
		require.NoError(t, err)
		require.EqualValues(t, i, h.Block)
		require.EqualValues(t, len(want), h.Length)
		body := make([]byte, h.Length)
		require.NoError(t, r.Body(body))
		require.True(t, bytes.Equal(want, body), "page %d", i)
	}
	_, err := r.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A connection that fails in the middle of a page fails the call.
func TestAWriteThatFails(t *testing.T) {
	for _, left := range []int64{0, 10, 100, 1 << 20} {
		w := handover.NewWriter(&full{left: left})
		require.ErrorIs(t, w.Page(handover.Header{Kind: handover.Page}, make([]byte, 1<<20)),
			io.ErrShortWrite)
	}
}

// full is a writer that fails when so many bytes are written.
type full struct{ left int64 }

func (f *full) Write(b []byte) (int, error) {
	if n := min(f.left, int64(len(b))); n < int64(len(b)) {
		return int(n), io.ErrShortWrite
	}
	f.left -= int64(len(b))
	return len(b), nil
}
