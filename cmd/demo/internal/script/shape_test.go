package script

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIntegers(t *testing.T) {
	cases := []struct {
		text string
		n    int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"-12", -12, true},
		{"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", math.MaxInt64, true},
		{"-9223372036854775809", math.MinInt64, true},
		{"1.0", 0, false}, {"1e3", 0, false}, {"1E3", 0, false}, {`"1"`, 0, false}, {"true", 0, false},
	}
	for _, c := range cases {
		n, ok := integer([]byte(c.text))
		assert.Equal(t, c.ok, ok, c.text)
		assert.Equal(t, c.n, n, c.text)
	}
}
