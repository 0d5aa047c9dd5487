package sim_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/sim"
)

// FuzzReadProfile: what is read as a profile is written and read again as the same.
func FuzzReadProfile(f *testing.F) {
	for _, name := range sim.Profiles() {
		p, err := sim.NamedProfile(name)
		require.NoError(f, err)
		var b bytes.Buffer
		require.NoError(f, p.Write(&b))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := sim.ReadProfile(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, p.Write(&b))
		again, err := sim.ReadProfile(&b)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
