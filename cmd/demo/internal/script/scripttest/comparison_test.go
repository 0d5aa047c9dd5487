package scripttest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

func TestExamplesOverTheOracle(t *testing.T) {
	Examples{
		Folder: "../../../testdata/scripts", Modulo: script.Protocol, Open: OpenOracle,
		Without: []string{"17-rebalance", "35-states-and-rebalance"}, // no part of the model
	}.Run(t)
}

// Other examples can be run without copying them here.
func TestOtherExamplesOverTheOracle(t *testing.T) {
	if folder := os.Getenv("KVACTOR_EXAMPLES"); folder != "" {
		Examples{Folder: folder, Modulo: script.Protocol, Open: OpenOracle}.Run(t)
	}
}

// Random scripts are served without internal errors, and the same script gives
// the same answers, to the byte.
func TestRandomScriptsOverTheOracle(t *testing.T) {
	for seed := range uint64(30) {
		requests := Random(seed, 60)
		require.Equal(t, requests, Random(seed, 60))
		var first, second bytes.Buffer
		require.NoError(t, script.Run(bytes.NewReader(requests), &first, OpenOracle))
		require.NoError(t, script.Run(bytes.NewReader(requests), &second, OpenOracle))
		require.Equalf(t, first.String(), second.String(), "seed %d", seed)
		require.NotContainsf(t, first.String(), `"code":"internal"`, "seed %d", seed)
		require.Greaterf(t, strings.Count(first.String(), `"ok":true`), 40, "seed %d", seed)
	}
}

// A comparison sees one decision that differs, and says which.
func TestComparisonFailsWhenAnswersDiffer(t *testing.T) {
	comparison := Comparison{Got: OpenOracle, Want: OpenOracle, Requests: 40}
	require.NoError(t, comparison.CompareSeed(1))
	comparison.Got = func(s script.Setup) (*script.Rig, error) {
		s.Cache.EnableBlockReuse = false
		return OpenOracle(s)
	}
	err := comparison.CompareSeed(1)
	require.ErrorContains(t, err, "seed 1: request ")
}
