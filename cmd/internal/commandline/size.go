package commandline

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// units are the sizes that a command line may use: binary with an i, or for a
// single letter; decimal otherwise. The longest that fits counts.
var units = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"b", 1},
}

// Size is a number of bytes on a command line, such as 80GiB, 24GB, 512M or
// 1000000.
type Size int64

// Set reads a size.
func (s *Size) Set(text string) error {
	number, factor := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*factor >= math.MaxInt64 {
		return errors.New("it is not a size such as 80GiB")
	}
	*s = Size(v * factor)
	return nil
}

// String prints the size: in GiB if it is a whole number of them, else in bytes.
func (s *Size) String() string {
	switch n := int64(*s); {
	case n == 0:
		return ""
	case n%(1<<30) == 0:
		return strconv.FormatInt(n>>30, 10) + "GiB"
	default:
		return strconv.FormatInt(n, 10)
	}
}

// Type names the values in the help.
func (s *Size) Type() string { return "size" }
