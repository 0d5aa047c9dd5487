package publish

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// unpack reads one MessagePack value: an int, a float64, a string, nil, a []any or a
// map[string]any.
func unpack(t *testing.T, b []byte) (value any, rest []byte) {
	require.NotEmpty(t, b)
	head, b := b[0], b[1:]
	number := func(n int) int {
		var wide [8]byte
		copy(wide[8-n:], b[:n])
		b = b[n:]
		return int(binary.BigEndian.Uint64(wide[:]))
	}
	text := func(n int) (any, []byte) { return string(b[:n]), b[n:] }
	list := func(n int) (any, []byte) { return unpackList(t, b, n) }
	keys := func(n int) (any, []byte) {
		flat, rest := unpackList(t, b, 2*n)
		m := map[string]any{}
		for i := 0; i < 2*n; i += 2 {
			m[flat[i].(string)] = flat[i+1]
		}
		return m, rest
	}
	switch {
	case head < 0x80:
		return int(head), b
	case head < 0x90:
		return keys(int(head & 0xf))
	case head < 0xa0:
		return list(int(head & 0xf))
	case head < 0xc0:
		return text(int(head & 0x1f))
	case head == 0xc0:
		return nil, b
	case head == 0xcb:
		return math.Float64frombits(uint64(number(8))), b
	case head >= 0xcc && head <= 0xcf:
		return number(1 << (head - 0xcc)), b
	case head == 0xd3:
		return number(8), b
	case head >= 0xd9 && head <= 0xdb:
		return text(number(1 << (head - 0xd9)))
	case head == 0xdc, head == 0xdd:
		return list(number(2 << (head - 0xdc)))
	case head == 0xde:
		return keys(number(2))
	case head >= 0xe0:
		return int(int8(head)), b
	}
	require.Failf(t, "no value", "head %#x", head)
	return nil, nil
}

func unpackList(t *testing.T, b []byte, n int) (list []any, rest []byte) {
	list = []any{}
	for range n {
		var value any
		value, b = unpack(t, b)
		list = append(list, value)
	}
	return list, b
}
