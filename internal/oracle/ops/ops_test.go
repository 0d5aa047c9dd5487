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
func twice(c oracle.Config) (a, b ops.Engine) { return ops.NewModel(c), second(c) }

// seconds are the stores of the second of two models, by those of the first.
var seconds = map[*oracle.Store]*oracle.Store{}

// second opens a model on a store of its own.
func second(c oracle.Config) ops.Model {
	if c.Store != nil {
		if seconds[c.Store.Store] == nil {
			seconds[c.Store.Store] = oracle.NewStore()
		}
		own := *c.Store
		own.Store = seconds[c.Store.Store]
		c.Store = &own
	}
	return ops.NewModel(c)
}

func TestOracleAgreesWithItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { ops.Compare(t, twice) })
}

func FuzzOracleAgreesWithItself(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { ops.Compare(t, twice) }))
}

func TestDifferencesAreFound(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			open := func(c oracle.Config) (a, b ops.Engine) { return ops.NewModel(c), v.open(c) }
			message := failureOf(t, func(t *rapid.T) { ops.Compare(t, open) })
			require.Contains(t, message, v.says)
		})
	}
}

func TestOperationsCanBeLeftOut(t *testing.T) {
	mute := func(c oracle.Config) ops.Engine { return &blind{second(c)} }
	rapid.Check(t, func(t *rapid.T) {
		c := ops.Comparison{
			Open:    func(c oracle.Config) (a, b ops.Engine) { return ops.NewModel(c), mute(c) },
			Without: []string{"lookup"},
		}
		c.Check(t)
	})
}
