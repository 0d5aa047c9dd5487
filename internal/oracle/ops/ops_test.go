package ops_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/internal/oracle/ops"
)

var _ ops.Engine = (*oracle.Oracle)(nil)

// twice opens the same model two times.
func twice(c oracle.Config) (a, b ops.Engine) { return oracle.New(c), oracle.New(c) }

func TestOracleAgreesWithItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { ops.Compare(t, twice) })
}

func FuzzOracleAgreesWithItself(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { ops.Compare(t, twice) }))
}

func TestDifferencesAreFound(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			open := func(c oracle.Config) (a, b ops.Engine) { return oracle.New(c), v.open(c) }
			message := failureOf(t, func(t *rapid.T) { ops.Compare(t, open) })
			require.Contains(t, message, v.says)
		})
	}
}

func TestOperationsCanBeLeftOut(t *testing.T) {
	mute := func(c oracle.Config) ops.Engine { return &blind{oracle.New(c)} }
	rapid.Check(t, func(t *rapid.T) {
		c := ops.Comparison{
			Open:    func(c oracle.Config) (a, b ops.Engine) { return oracle.New(c), mute(c) },
			Without: []string{"lookup"},
		}
		c.Check(t)
	})
}
