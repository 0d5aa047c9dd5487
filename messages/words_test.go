package messages_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// A text that is read as a tier is the one that the tier writes; any other is refused and
// changes nothing.
func FuzzTier(f *testing.F) {
	for _, text := range []string{"primary", "secondary", "", "Primary", "primary ", "gpu"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		const before = messages.Tier(7)
		tier := before
		if err := tier.UnmarshalText(text); err != nil {
			require.ErrorIs(t, err, messages.ErrBadRequest)
			assert.Equal(t, before, tier)
			return
		}
		written, err := tier.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, written)
	})
}
