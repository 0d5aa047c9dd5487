package handover

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/zeebo/xxh3"
)

// Version is the version of the format. A stream of another version is refused.
// It counts changes of the layout. Versions 1 and 2 had other headers; there was no version 3,
// which one flipped bit would make one of them.
const Version = 4

const (
	magic       = "kvho"
	headerBytes = 32
	checkAt     = 24 // the check is the last field of a header, and covers the others
	sumBytes    = 8

	// limit bounds the body of a message: the tokens of a sequence have less than 6 bytes each.
	limit = 256 << 20
)

// ErrCorrupt says that a stream is not what a source writes.
// The engine answers it as messages.ErrBadStream, and so it does a stream that ends too early.
// Other errors of a connection stay what they are: a host tells damage from a network that went
// away.
var ErrCorrupt = errors.New("the stream is damaged")

// corrupt is ErrCorrupt and the fact.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// ErrVersion says that a stream has a format of another version.
// The engine answers it as messages.ErrNotSupported, which names both versions: such a
// stream is whole, and another engine can read it.
var ErrVersion = errors.New("the stream has another format version")

// pieceBytes is the length of the pieces of a body whose checksums are chained.
// A reader that has read a piece computes its checksum while the piece is in the cache of
// its core: with 128 KiB the pass over a page of 1 MiB takes 38 µs, from memory 250 µs or more.
const pieceBytes = 128 << 10

// checksum goes on with a checksum: each piece is hashed with the sum before it as the seed.
// One pass takes a tenth of the time of one CRC of 32 bits or less, and misses one damage
// in 2⁶⁴.
func checksum(sum uint64, body []byte) uint64 {
	for piece := range slices.Chunk(body, pieceBytes) {
		sum = xxh3.HashSeed(piece, sum)
	}
	return sum
}

// Writer writes one direction of a connection.
// It belongs to one goroutine. An error of the connection ends the stream: what has been
// written is in doubt then, and the writer is not used again.
type Writer struct {
	to    io.Writer
	sum   uint64 // of all bodies so far
	bytes int64
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Bytes is the number of bytes written.
func (w *Writer) Bytes() int64 { return w.bytes }

// write writes several pieces of memory. A *net.TCPConn takes them in one writev, without a copy
// of a page; any other writer gets one Write for each.
func (w *Writer) write(pieces ...[]byte) error {
	buffers := net.Buffers(pieces)
	n, err := buffers.WriteTo(w.to)
	w.bytes += n
	return err
}

// message writes a value in JSON.
func (w *Writer) message(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// An error here, at the source, or the receiver would call the stream damaged.
	if len(body) > limit {
		return fmt.Errorf("a message of %d bytes is over the limit of %d", len(body), limit)
	}
	w.sum = checksum(w.sum, body)
	h := append(make([]byte, 0, headerBytes), magic...)
	h = binary.LittleEndian.AppendUint16(h, Version)
	h = append(h, 0, 0)
	h = binary.LittleEndian.AppendUint64(h, uint64(len(body)))
	h = binary.LittleEndian.AppendUint64(h, w.sum)
	return w.write(binary.LittleEndian.AppendUint64(h, xxh3.Hash(h)), body)
}

// Page writes a page. Its bytes are in the cache of the core that has just computed the checksum.
func (w *Writer) Page(body []byte) error {
	w.sum = checksum(w.sum, body)
	return w.write(body, binary.LittleEndian.AppendUint64(nil, w.sum))
}

// Reader reads one direction of a connection. It reads no byte beyond what it is asked for.
// What comes behind a stream on the same connection is the host's: nothing is buffered.
type Reader struct {
	from  io.Reader
	sum   uint64 // of all bodies so far
	bytes int64
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{from: r} }

// Bytes is the number of bytes read.
func (r *Reader) Bytes() int64 { return r.bytes }

// read fills b.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.from, b)
	return r.note(int64(n), err)
}

// note counts bytes. A stream that ends before its end ends too early, wherever that is.
func (r *Reader) note(n int64, err error) error {
	r.bytes += n
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// message reads a value in JSON.
func (r *Reader) message(v any) error {
	var h [headerBytes]byte
	if err := r.read(h[:]); err != nil {
		return err
	}
	// The order of the checks decides what a wrong stream is told: what it is not, then damage,
	// which may have hit the version too. The check comes before a byte of the body is waited for:
	// a damaged length would make the reader wait for bytes that never come, and the source for an
	// answer.
	version, length := binary.LittleEndian.Uint16(h[4:]), binary.LittleEndian.Uint64(h[8:])
	switch checked := binary.LittleEndian.Uint64(h[checkAt:]) == xxh3.Hash(h[:checkAt]); {
	case string(h[:4]) != magic:
		return corrupt("it begins with %q and not with %q", h[:4], magic)
	case !checked && version != 1 && version != 2:
		return corrupt("check of the header")
	case version != Version:
		return fmt.Errorf("%w: format version %d, this engine reads version %d", ErrVersion, version,
			Version)
	case length > limit:
		return corrupt("a message of %d bytes, at most %d are due", length, limit)
	}
	// Memory grows with the bytes that come: a length may be a lie.
	var body bytes.Buffer
	if err := r.note(io.CopyN(&body, r.from, int64(length))); err != nil {
		return err
	}
	r.sum = checksum(r.sum, body.Bytes())
	if binary.LittleEndian.Uint64(h[16:]) != r.sum {
		return corrupt("checksum of a message")
	}
	d := json.NewDecoder(&body)
	// A field of a later version may change what the others mean.
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return corrupt("%v", err)
	}
	return nil
}

// Page reads a page into memory of exactly its length, and verifies it.
func (r *Reader) Page(into []byte) error {
	// The page may lie in staging memory of the device: it is in its place before it is
	// verified, and a page of a stream that turns out to be damaged is never used.
	for piece := range slices.Chunk(into, pieceBytes) {
		if err := r.read(piece); err != nil {
			return err
		}
		r.sum = checksum(r.sum, piece)
	}
	var sum [sumBytes]byte
	if err := r.read(sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(sum[:]) != r.sum {
		return corrupt("checksum of a page")
	}
	return nil
}
