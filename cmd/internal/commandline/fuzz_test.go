package commandline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is said for a size is a number of bytes that reads back as itself, or refused.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"80GiB", "24 gb", "512M", "1e6", "0x1p20", "8EiB", "-1", "NaN",
		"Inf", "1_000k", "b", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again Size
		if s.Set(text) != nil {
			return
		}
		require.GreaterOrEqual(t, s, Size(0))
		if s > 1<<53 { // more digits than a float64 has
			return
		}
		if s > 0 {
			require.NoError(t, again.Set(s.String()))
		}
		require.Equal(t, s, again)
	})
}
