package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Version is that of the wire, which Open names.
const Version = 1

// ErrTooLarge is answered for a frame over the limit of its reader.
var ErrTooLarge = errors.New("wire: the frame is too large")

// ErrGarbage is answered for a frame that is no message, or has fields that are not known.
var ErrGarbage = errors.New("wire: the frame cannot be read")

// headBytes is the length of a message in front of it.
const headBytes = 4

// Read reads the next frame into buffer, or into a larger one, and returns it. A frame over
// the limit is ErrTooLarge. Nothing is allocated before its bytes have come: a client that
// announces much and sends little costs little.
func Read(r io.Reader, buffer []byte, limit int) ([]byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buffer[:0], err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > int64(limit) {
		return buffer[:0], fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, limit)
	}
	buffer = buffer[:0]
	for left := int(n); left > 0; {
		part := min(left, max(cap(buffer)-len(buffer), growBytes))
		at := len(buffer)
		buffer = slices.Grow(buffer, part)[:at+part]
		if _, err := io.ReadFull(r, buffer[at:]); err != nil {
			return buffer[:0], noEnd(err)
		}
		left -= part
	}
	return buffer, nil
}

// growBytes is what a buffer grows by before the bytes have come.
const growBytes = 1 << 20

// noEnd makes an end within a frame an error.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Append adds a frame of the message to buffer.
func Append(buffer []byte, m proto.Message) ([]byte, error) {
	start := len(buffer)
	buffer = append(buffer, make([]byte, headBytes)...)
	buffer, err := proto.MarshalOptions{}.MarshalAppend(buffer, m)
	if err != nil {
		return buffer[:start], err
	}
	binary.LittleEndian.PutUint32(buffer[start:], uint32(len(buffer)-start-headBytes))
	return buffer, nil
}

// Decode reads a message from the bytes of a frame. Fields that are not known are an error
// that names their message and number.
func Decode(frame []byte, m proto.Message) error {
	if err := proto.Unmarshal(frame, m); err != nil {
		return ErrGarbage // the text of the library may have bytes of the frame
	}
	return known(m.ProtoReflect())
}

// known refuses fields that are not known. It looks at the messages within only: to range over all
// fields that are set makes a value of each.
func known(m protoreflect.Message) (err error) {
	if raw := m.GetUnknown(); len(raw) > 0 {
		number, _, _ := protowire.ConsumeTag(raw)
		return fmt.Errorf("%w: %s has no field %d", ErrGarbage, m.Descriptor().Name(), number)
	}
	fields := m.Descriptor().Fields()
	for i := 0; i < fields.Len() && err == nil; i++ {
		f := fields.Get(i)
		switch {
		case f.Message() == nil || !m.Has(f):
		case f.IsList():
			for list, k := m.Get(f).List(), 0; k < list.Len() && err == nil; k++ {
				err = known(list.Get(k).Message())
			}
		default:
			err = known(m.Get(f).Message())
		}
	}
	return err
}
