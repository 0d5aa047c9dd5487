package oracle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
)

var _ Engine = (*oracle.Oracle)(nil)

// twice opens the same model two times.
func twice(c oracle.Config) (a, b Engine) { return NewModel(c), second(c) }

// seconds are the stores of the second of two models, by those of the first.
var seconds = map[*oracle.Store]*oracle.Store{}

// second opens a model on a store of its own.
func second(c oracle.Config) Model {
	if c.Store != nil {
		if seconds[c.Store.Store] == nil {
			seconds[c.Store.Store] = oracle.NewStore()
		}
		own := *c.Store
		own.Store = seconds[c.Store.Store]
		c.Store = &own
	}
	return NewModel(c)
}

func TestOracleAgreesWithItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { Compare(t, twice) })
}

func FuzzOracleAgreesWithItself(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { Compare(t, twice) }))
}

func TestDifferencesAreFound(t *testing.T) {
	for _, v := range mutants() {
		t.Run(v.name, func(t *testing.T) {
			open := func(c oracle.Config) (a, b Engine) { return NewModel(c), v.open(c) }
			message := failureOf(t, func(t *rapid.T) { Compare(t, open) })
			require.Contains(t, message, v.says)
		})
	}
}

func TestOperationsCanBeLeftOut(t *testing.T) {
	mute := func(c oracle.Config) Engine { return &blind{second(c)} }
	rapid.Check(t, func(t *rapid.T) {
		c := Comparison{
			Open:    func(c oracle.Config) (a, b Engine) { return NewModel(c), mute(c) },
			Without: []string{"lookup"},
		}
		c.Check(t)
	})
}
