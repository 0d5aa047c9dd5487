package handover

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Version is the version of the format. A stream of another version is refused.
// It counts changes of the layout. A change of what pages hold is one of the fingerprint.
// Version 1 had one checksum for a frame's header and body.
const Version = 2

const (
	magic = "kvho"
	// Lengths and offsets in bytes, as in the picture of the package comment.
	preambleBytes = 48
	headerBytes   = 40
	sumAt         = 24 // the checksum of the body, in a header
	// The check of a preamble or header is its last field, so that it covers all fields
	// before it.
	checkBytes = 8

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
	Geometry: "geometry", Sequence: "sequence", Tokens: "tokens", Items: "items", Page: "page",
	End:    "end",
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

// ErrVersion says that a stream has a format of another version.
// The engine answers it as messages.ErrNotSupported, which names both versions: such a
// stream is whole, and another engine can read it.
var ErrVersion = errors.New("the stream has another format version")

// pieceBytes is the length of the pieces of a body whose checksums are chained.
// A reader that has read a piece computes its checksum while the piece is in the cache of
// its core: with 128 KiB the pass over a page of 1 MiB takes 38 µs, from memory 250 µs or more.
const pieceBytes = 128 << 10

// checksum is that of a body: the XXH3 of 64 bits of its last piece, seeded with the
// checksum of the pieces before.
// One pass takes a tenth of the time of one CRC of 32 bits or less, and misses one damage
// in 2⁶⁴. An empty body has 0.
func checksum(body []byte) (sum uint64) {
	for piece := range slices.Chunk(body, pieceBytes) {
		sum = xxh3.HashSeed(piece, sum)
	}
	return sum
}

// appendCheck appends the check of a preamble or header to its other fields.
func appendCheck(fields []byte) []byte {
	return binary.LittleEndian.AppendUint64(fields, xxh3.Hash(fields))
}

// checked tells whether a preamble or header ends with its check.
func checked(b []byte) bool {
	n := len(b) - checkBytes
	return binary.LittleEndian.Uint64(b[n:]) == xxh3.Hash(b[:n])
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
	// header and buffers keep their arrays from frame to frame.
	header  []byte
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
	// The check of the preamble comes before any frame: a stream of something else is
	// refused by its first 48 bytes, not by a length that makes no sense.
	p := append([]byte(nil), magic...)
	p = binary.LittleEndian.AppendUint16(p, Version)
	p = binary.LittleEndian.AppendUint16(p, flags)
	p = append(p, f[:]...)
	p = appendCheck(p)
	w.digest.Write(p)
	return w.write(p)
}

// Frame writes one frame.
func (w *Writer) Frame(k Kind, body []byte) error {
	return w.Page(Header{Kind: k}, body)
}

// Page writes a frame whose length is that of the body.
func (w *Writer) Page(h Header, body []byte) error {
	h.Length = uint64(len(body))
	// The body is in the cache of the core that has just computed its checksum.
	w.header = w.append(w.header[:0], h, checksum(body))
	w.buffers = append(w.buffers[:0], w.header)
	if len(body) > 0 {
		w.buffers = append(w.buffers, body)
	}
	// A *net.TCPConn takes the buffers in one writev, without a copy of the page; any other
	// writer gets one Write for each. WriteTo consumes the slice, so the writer keeps its own.
	buffers := w.buffers
	n, err := buffers.WriteTo(w.to)
	w.bytes += n
	return err
}

// append appends the header of the next frame, whose body has a checksum.
func (w *Writer) append(b []byte, h Header, sum uint64) []byte {
	start := len(b)
	b = append(b, byte(h.Kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.Pool)
	b = binary.LittleEndian.AppendUint32(b, h.Block)
	b = binary.LittleEndian.AppendUint32(b, w.number)
	b = binary.LittleEndian.AppendUint64(b, h.Length)
	b = binary.LittleEndian.AppendUint64(b, sum)
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b[start:]))
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
	// The order of the checks decides what a wrong stream is told: what it is not, then damage,
	// which may have hit the version and the flags too. From version 2 on all versions have the
	// preamble's layout and check; that of version 1 was another.
	version, flags := binary.LittleEndian.Uint16(p[4:]), binary.LittleEndian.Uint16(p[6:])
	switch {
	case string(p[:4]) != magic:
		return f, false, corrupt("it begins with %q and not with %q", p[:4], magic)
	case version != 1 && !checked(p[:]):
		return f, false, corrupt("check of the preamble")
	case version != Version:
		return f, false, fmt.Errorf("%w: format version %d, this engine reads version %d", ErrVersion,
			version, Version)
	// A flag of a later version may change what follows, so an unknown one is refused.
	case flags&^flagAnswers != 0:
		return f, false, corrupt("flags %x", flags)
	}
	r.digest.Write(p[:])
	return stores.Fingerprint(p[8:40]), flags == flagAnswers, nil
}

// Next reads and verifies the header of the next frame. Body follows.
func (r *Reader) Next() (Header, error) {
	if err := r.read(r.header[:]); err != nil {
		return Header{}, err
	}
	// The check comes before a byte of the body is waited for: a damaged length would make the
	// reader wait for bytes that never come, and the source for an answer.
	b := r.header[:]
	if !checked(b) {
		return Header{}, corrupt("check of the header of frame %d", r.number)
	}
	h := Header{
		Kind: Kind(b[0]), Pool: binary.LittleEndian.Uint32(b[4:]),
		Block:  binary.LittleEndian.Uint32(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
	}
	// The number finds a frame that is missing or repeated.
	number := binary.LittleEndian.Uint32(b[12:])
	if b[1]|b[2]|b[3] != 0 || number != r.number {
		return h, corrupt("%v frame of number %d in place of number %d", h.Kind, number, r.number)
	}
	return h, nil
}

// Body reads the body of the frame whose header was read last, into memory of exactly its
// length, and verifies it.
func (r *Reader) Body(into []byte) error {
	// The body may lie in staging memory of the device: it is in its place before it is
	// verified, and a page of a stream that turns out to be damaged is never used.
	sum := uint64(0)
	for piece := range slices.Chunk(into, pieceBytes) {
		if err := r.read(piece); err != nil {
			return err
		}
		sum = xxh3.HashSeed(piece, sum)
	}
	return r.verify(sum)
}

// verify compares the checksum of a body with that in its header, and ends the frame.
func (r *Reader) verify(sum uint64) error {
	if binary.LittleEndian.Uint64(r.header[sumAt:]) != sum {
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
// The check of a header finds damage and no lie. So its length is compared with what may be
// due before memory is taken for it.
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
	return body, r.verify(checksum(body))
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
