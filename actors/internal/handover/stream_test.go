package handover_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor/actors/internal/handover"
)

const (
	headerBytes = 32
	checkAt     = 24
)

// stream is an opening and pages.
func stream(t *testing.T, pages ...[]byte) (all []byte, opening int) {
	var b bytes.Buffer
	w := handover.NewWriter(&b)
	require.NoError(t, w.Open(&handover.Opening{Answers: true}))
	opening = b.Len()
	for _, p := range pages {
		require.NoError(t, w.Page(p))
	}
	require.EqualValues(t, b.Len(), w.Bytes())
	return b.Bytes(), opening
}

// read reads a stream and compares its pages.
func read(all []byte, want ...[]byte) error {
	r := handover.NewReader(bytes.NewReader(all))
	if _, err := r.Opening(); err != nil {
		return err
	}
	for _, w := range want {
		page := make([]byte, len(w))
		if err := r.Page(page); err != nil {
			return err
		}
		if !bytes.Equal(page, w) {
			return errors.New("another page")
		}
	}
	return nil
}

// A damaged header is found without a byte behind it: a reader that believed its length
// would wait for bytes that the source never writes, while the source waits for an answer.
func TestDamagedHeaderIsFoundBeforeItsBody(t *testing.T) {
	all, _ := stream(t)
	for bit := range 8 * headerBytes {
		damaged := bytes.Clone(all[:headerBytes])
		damaged[bit/8] ^= 1 << (bit % 8)
		_, err := handover.NewReader(bytes.NewReader(damaged)).Opening()
		require.ErrorIs(t, err, handover.ErrCorrupt, "bit %d of the header", bit)
	}
}

// A damaged body is found by its checksum, wherever the damage is.
func TestDamagedPageIsFound(t *testing.T) {
	body := make([]byte, 300<<10) // several pieces
	for i := range body {
		body[i] = byte(i*7 + i>>16)
	}
	all, at := stream(t, body)
	for _, i := range []int{0, 1, 128<<10 - 1, 128 << 10, 256 << 10, len(body) - 1, len(body)} {
		damaged := bytes.Clone(all)
		damaged[at+i] ^= 1
		assert.ErrorIs(t, read(damaged, body), handover.ErrCorrupt, "byte %d", i)
	}
	swapped := bytes.Clone(all)
	pieces := swapped[at:]
	first := bytes.Clone(pieces[:128<<10])
	copy(pieces, pieces[128<<10:256<<10])
	copy(pieces[128<<10:], first)
	assert.ErrorIs(t, read(swapped, body), handover.ErrCorrupt, "two pieces in the wrong order")
	assert.NoError(t, read(all, body))
	damaged := bytes.Clone(all)
	damaged[at-1] ^= 1
	assert.ErrorIs(t, read(damaged), handover.ErrCorrupt, "the opening")
}

// A page that is missing, repeated, swapped or of another stream is found behind the next one.
func TestPagesOutOfOrderAreFound(t *testing.T) {
	a, b, c := []byte("page a"), []byte("page b"), []byte("page c")
	all, at := stream(t, a, b, c)
	n := len(a) + 8
	part := func(i int) []byte { return all[at+i*n : at+(i+1)*n] }
	join := func(parts ...[]byte) []byte {
		return append(bytes.Clone(all[:at]), bytes.Join(parts, nil)...)
	}
	assert.NoError(t, read(join(part(0), part(1), part(2)), a, b, c))
	assert.ErrorIs(t, read(join(part(1), part(0), part(2)), b, a, c), handover.ErrCorrupt)
	assert.ErrorIs(t, read(join(part(0), part(2)), a, c), handover.ErrCorrupt)
	assert.ErrorIs(t, read(join(part(0), part(0), part(1)), a, a, b), handover.ErrCorrupt)
	assert.ErrorIs(t, read(join(part(0), part(1)), a, b, c), io.ErrUnexpectedEOF)
}

// Streams of other versions are refused by their version.
func TestOtherVersionsAreRefusedByName(t *testing.T) {
	all, _ := stream(t)
	for version, want := range map[uint16]string{
		1: "format version 1, this engine reads version 4",
		2: "format version 2, this engine reads version 4",
		5: "format version 5, this engine reads version 4",
	} {
		other := bytes.Clone(all)
		binary.LittleEndian.PutUint16(other[4:], version)
		if version > 2 { // those before had other headers
			binary.LittleEndian.PutUint64(other[checkAt:], xxh3.Hash(other[:checkAt]))
		}
		err := read(other)
		assert.ErrorIs(t, err, handover.ErrVersion)
		assert.ErrorContains(t, err, want)
	}
}

// Pages of all sizes come as they were.
func TestPagesComeAsTheyWere(t *testing.T) {
	var pages [][]byte
	for i, size := range []int{1, 100, 128 << 10, 128<<10 + 1, 1 << 20, 3 << 20, 5, 700 << 10} {
		pages = append(pages, bytes.Repeat([]byte{byte(i + 1)}, size))
	}
	all, _ := stream(t, pages...)
	require.NoError(t, read(all, pages...))
}

// Answers come as they were, and a refusal instead of any of them.
func TestAnswers(t *testing.T) {
	var b bytes.Buffer
	w, r := handover.NewWriter(&b), handover.NewReader(&b)
	require.NoError(t, w.Answer([]bool{true, false, true}))
	wanted, err := r.Answer(3)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false, true}, wanted)
	require.NoError(t, w.Answer(nil))
	_, err = r.Answer(0)
	require.NoError(t, err)
	require.NoError(t, w.Answer([]bool{true}))
	_, err = r.Answer(2)
	require.ErrorIs(t, err, handover.ErrCorrupt)
	require.NoError(t, w.Refuse(errors.New("too few pages")))
	_, err = r.Answer(3)
	require.ErrorIs(t, err, handover.ErrRefused)
	assert.ErrorContains(t, err, "too few pages")
}

// A connection that fails in the middle of a page fails the call.
func TestAWriteThatFails(t *testing.T) {
	for _, left := range []int64{0, 10, 100, 1 << 20} {
		w := handover.NewWriter(&full{left: left})
		require.ErrorIs(t, w.Page(make([]byte, 1<<20)), io.ErrShortWrite)
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
