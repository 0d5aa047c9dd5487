package kvevents

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A text that is read as a hash is the one that the hash writes, but for upper case; any other
// is refused and changes nothing.
func FuzzHash(f *testing.F) {
	for _, text := range []string{"", "000102030405060708090a0b0c0d0e0f",
		"000102030405060708090A0B0C0D0E0F", "000102030405060708090a0b0c0d0e0g"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := Hash{1, 2, 3}
		hash := before
		if err := hash.UnmarshalText(text); err != nil {
			assert.Equal(t, before, hash)
			return
		}
		written, err := hash.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, bytes.ToLower(text), written)
	})
}
