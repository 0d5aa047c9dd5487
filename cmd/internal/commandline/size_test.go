package commandline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"80GiB": 80 << 30, "1.5 kib": 1536, "24GB": 24e9, "512M": 512 << 20, "1000000": 1e6, "1e9": 1e9,
		"7b": 7, "0": 0, "2t": 2 << 40,
	} {
		var s Size
		require.NoError(t, s.Set(text), text)
		assert.Equal(t, want, s, text)
	}
	for _, text := range []string{"", "GiB", "-1", "nan", "1e30", "80 hours", "1EiB", "1e300GiB"} {
		var s Size
		assert.Error(t, s.Set(text), text)
	}
	s := Size(5)
	assert.Equal(t, "5", s.String())
	s = 80 << 30
	assert.Equal(t, "80GiB", s.String())
	assert.Equal(t, "size", s.Type())
}
