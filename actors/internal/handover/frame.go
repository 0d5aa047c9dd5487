package handover

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Version is the version of the format. A stream of another version is refused.
// It counts changes of the layout. A change of what pages hold is one of the fingerprint.
const Version = 1

const (
	magic = "kvho"
	// Lengths and offsets in bytes, as in the picture of the package comment.
	preambleBytes = 48
	headerBytes   = 32
	// The checksum is the last field, so that it covers all fields before it.
	sumAt = 24 // in a header

	// flagAnswers: the source reads answers, and releases the pages when the receiver says so.
	flagAnswers = 1
)

// Kind is the kind of a frame.
type Kind uint8

// The kinds of frames. Those from Wanted on go from the receiver to the source.
// Their numbers are in streams that were written to files, so none is used again.
const (
	Geometry Kind = iota + 1
	Sequence
	Tokens
	Items
	Page
	End
	Wanted
	Acknowledged
	Refused
)

var kindNames = map[Kind]string{
	Geometry: "geometry", Sequence: "sequence", Tokens: "tokens", Items: "items", Page: "page", End: "end",
	Wanted: "wanted", Acknowledged: "acknowledged", Refused: "refused",
}

// String names the kind.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ErrCorrupt says that a stream is not what a source writes.
// The engine answers it as messages.ErrBadStream, and so it does a stream that ends within
// a frame. Other errors of a connection stay what they are: a host tells damage from a
// network that went away.
var ErrCorrupt = errors.New("the stream is damaged")

// corrupt is ErrCorrupt and the fact.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Header is what a frame says before its body. Pool and Block are those of a page.
// In frames other than pages both are 0, and a reader refuses them otherwise: every byte
// of a stream has one right value.
type Header struct {
	Kind   Kind
	Pool   uint32
	Block  uint32
	Length uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a header, as far as its checksum, and a body.
// The Castagnoli CRC is the low half, which one instruction computes on amd64 and arm64;
// the IEEE CRC is the high half. Two independent polynomials find what one of them misses,
// at a cost well below that of SHA-256 over megabytes of pages.
func checksum(header, body []byte) uint64 {
	var sum uint64
	for i, table := range []*crc32.Table{castagnoli, crc32.IEEETable} {
		crc := crc32.Update(crc32.Checksum(header, table), table, body)
		sum |= uint64(crc) << (32 * i)
	}
	return sum
}

// direction numbers the frames of one direction and digests their headers.
// A connection has two: each side numbers and digests what it writes, and the other side
// what it reads of that.
type direction struct {
	// number is that of the next frame. A sequence has far fewer than 2³² pages.
	number uint32
	// digest is over the preamble and the headers of all frames before number.
	digest hash.Hash
}

func newDirection() direction { return direction{digest: sha256.New()} }

// Writer writes frames.
// It belongs to one goroutine. An error of the connection ends the stream: what has been
// written is in doubt then, and the writer is not used again.
type Writer struct {
	to io.Writer
	direction
	// headers and buffers keep their arrays from call to call.
	headers []byte // of one Pages call
	buffers net.Buffers
	bytes   int64
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w, direction: newDirection()} }

// Bytes is the number of bytes written.
func (w *Writer) Bytes() int64 { return w.bytes }

// Begin writes the preamble of a stream. With answers the source reads them.
func (w *Writer) Begin(f stores.Fingerprint, answers bool) error {
	flags := uint16(0)
	if answers {
		flags = flagAnswers
	}
	// The checksum of the preamble comes before any frame: a stream of something else is
	// refused by its first 48 bytes, not by a length that makes no sense.
	p := append([]byte(nil), magic...)
	p = binary.LittleEndian.AppendUint16(p, Version)
	p = binary.LittleEndian.AppendUint16(p, flags)
	p = append(p, f[:]...)
	p = binary.LittleEndian.AppendUint64(p, checksum(p, nil))
	w.digest.Write(p)
	return w.write(p)
}

// Frame writes one frame.
func (w *Writer) Frame(k Kind, body []byte) error {
	return w.Pages([]Header{{Kind: k}}, [][]byte{body})
}

// Pages writes frames in one call, where the connection can do that. The Lengths of
// headers follow from bodies.
func (w *Writer) Pages(headers []Header, bodies [][]byte) error {
	w.headers, w.buffers = w.headers[:0], w.buffers[:0]
	for i := range headers {
		h := headers[i]
		h.Length = uint64(len(bodies[i]))
		w.headers = w.append(w.headers, h, bodies[i])
	}
	for i := range headers {
		w.buffers = append(w.buffers, w.headers[i*headerBytes:(i+1)*headerBytes])
		if len(bodies[i]) > 0 {
			w.buffers = append(w.buffers, bodies[i])
		}
	}
	// A *net.TCPConn takes the buffers in one writev, without a copy of the pages; any other
	// writer gets one Write for each.
	n, err := w.buffers.WriteTo(w.to)
	w.bytes += n
	return err
}

// append appends the header of the next frame.
func (w *Writer) append(b []byte, h Header, body []byte) []byte {
	start := len(b)
	b = append(b, byte(h.Kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.Pool)
	b = binary.LittleEndian.AppendUint32(b, h.Block)
	b = binary.LittleEndian.AppendUint32(b, w.number)
	b = binary.LittleEndian.AppendUint64(b, h.Length)
	b = binary.LittleEndian.AppendUint64(b, checksum(b[start:], body))
	// Only the header goes into the digest: its checksum stands for the body, which is hashed
	// once and not twice.
	w.number++
	w.digest.Write(b[start:])
	return b
}

// End writes the frame that ends a stream.
// The digest is taken before the frame is written, so it covers all headers but its own.
func (w *Writer) End() error { return w.Frame(End, w.digest.Sum(nil)) }

func (w *Writer) write(b []byte) error {
	n, err := w.to.Write(b)
	w.bytes += int64(n)
	return err
}

// Reader reads frames. It reads no byte beyond the frames that it is asked for.
// What comes behind a stream on the same connection is the host's: nothing is buffered.
type Reader struct {
	from io.Reader
	direction
	header [headerBytes]byte
	bytes  int64
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{from: r, direction: newDirection()} }

// Bytes is the number of bytes read.
func (r *Reader) Bytes() int64 { return r.bytes }

// Begin reads a preamble.
func (r *Reader) Begin() (f stores.Fingerprint, answers bool, err error) {
	var p [preambleBytes]byte
	if err := r.read(p[:]); err != nil {
		return f, false, err
	}
	// The order of the checks decides what a wrong stream is told: what it is not, then its
	// version, then damage, which may have hit the flags too.
	version, flags := binary.LittleEndian.Uint16(p[4:]), binary.LittleEndian.Uint16(p[6:])
	switch {
	case string(p[:4]) != magic:
		return f, false, corrupt("it begins with %q and not with %q", p[:4], magic)
	case version != Version:
		return f, false, corrupt("version %d, this engine reads %d", version, Version)
	case binary.LittleEndian.Uint64(p[40:]) != checksum(p[:40], nil):
		return f, false, corrupt("checksum of the preamble")
	// A flag of a later version may change what follows, so an unknown one is refused.
	case flags&^flagAnswers != 0:
		return f, false, corrupt("flags %x", flags)
	}
	r.digest.Write(p[:])
	return stores.Fingerprint(p[8:40]), flags == flagAnswers, nil
}

// Next reads the header of the next frame. Body follows.
func (r *Reader) Next() (Header, error) {
	if err := r.read(r.header[:]); err != nil {
		return Header{}, err
	}
	b := r.header[:]
	h := Header{
		Kind: Kind(b[0]), Pool: binary.LittleEndian.Uint32(b[4:]), Block: binary.LittleEndian.Uint32(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
	}
	// The number finds a frame that is missing or repeated before its body is read; the header
	// is verified with its body.
	number := binary.LittleEndian.Uint32(b[12:])
	if b[1]|b[2]|b[3] != 0 || number != r.number {
		return h, corrupt("%v frame of number %d in place of number %d", h.Kind, number, r.number)
	}
	return h, nil
}

// Body reads the body of the frame whose header was read last, into memory of exactly its
// length, and verifies both.
func (r *Reader) Body(into []byte) error {
	// The body may lie in staging memory of the device: it is in its place before it is
	// verified, and a page of a stream that turns out to be damaged is never used.
	if err := r.read(into); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(r.header[sumAt:]) != checksum(r.header[:sumAt], into) {
		return corrupt("checksum of %v frame %d", Kind(r.header[0]), r.number)
	}
	r.number++
	r.digest.Write(r.header[:])
	return nil
}

// stepBytes is how much memory a body is given at a time: a length may be a lie, and its
// bytes never come.
const stepBytes = 1 << 20

// Frame reads a frame of a kind whose body has at most limit bytes.
func (r *Reader) Frame(k Kind, limit int) ([]byte, error) {
	h, err := r.Next()
	if err != nil {
		return nil, err
	}
	return r.frame(h, k, limit)
}

// frame is Frame for a header that has been read.
// The header is not verified yet. So its length is compared with what may be due before
// memory is taken for it.
func (r *Reader) frame(h Header, k Kind, limit int) ([]byte, error) {
	switch {
	case h.Kind != k || h.Pool != 0 || h.Block != 0:
		return nil, corrupt("a %v frame where a %v frame is due", h.Kind, k)
	case h.Length > uint64(limit):
		return nil, corrupt("a %v frame of %d bytes, at most %d are due", k, h.Length, limit)
	case h.Length <= stepBytes:
		body := make([]byte, h.Length)
		return body, r.Body(body)
	}
	return r.large(int(h.Length))
}

// large reads a body in steps.
// Memory grows with the bytes that have come: a header that promises 4 MiB and a
// connection that then stands still hold one step.
func (r *Reader) large(length int) ([]byte, error) {
	var body []byte
	for len(body) < length {
		n := min(stepBytes, length-len(body))
		body = append(body, make([]byte, n)...)
		if err := r.read(body[len(body)-n:]); err != nil {
			return nil, err
		}
	}
	if binary.LittleEndian.Uint64(r.header[sumAt:]) != checksum(r.header[:sumAt], body) {
		return nil, corrupt("checksum of %v frame %d", Kind(r.header[0]), r.number)
	}
	r.number++
	r.digest.Write(r.header[:])
	return body, nil
}

// End reads the frame that ends a stream.
func (r *Reader) End() error {
	want := r.digest.Sum(nil)
	got, err := r.Frame(End, len(want))
	if err != nil {
		return err
	}
	if string(got) != string(want) {
		return corrupt("digest of the stream")
	}
	return nil
}

// read fills b. A stream that ends within a frame ends too early, wherever that is.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.from, b)
	r.bytes += int64(n)
	if errors.Is(err, io.EOF) && len(b) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
