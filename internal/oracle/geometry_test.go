package oracle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
)

func TestGeometryMakesTheSamePools(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var drawn oracle.Config
		c := Comparison{
			Open:    func(c oracle.Config) (a, b Engine) { drawn = c; return twice(c) },
			Without: []string{"admit", "batch"},
		}
		c.Check(t)
		m, w := Geometry(drawn)
		require.NoError(t, w.Validate(m))
		pools, err := windows.Pools(m, w)
		require.NoError(t, err)
		require.Len(t, pools, len(drawn.Pools))
		for i, p := range pools {
			want := drawn.Pools[i]
			require.Equal(t, want.Name, p.Name)
			require.Equal(t, want.Layers, p.Layers)
			require.Equal(t, want.PageBytes, p.PageBytes())
			require.Equal(t, [2]int{want.Window, want.Sink}, [2]int{p.Window, p.Sink})
		}
	})
}
