package live_test

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
)

// The engine's answers to the examples are those beside them.
func TestExamplesOverTheEngine(t *testing.T) {
	examples{folder: "../../testdata/scripts", open: live.Open}.run(t)
}

// So are those to the examples of the protocol itself, where they lie beside the
// checkout.
func TestSharedExamplesOverTheEngine(t *testing.T) {
	const folder = "../../../../../../shared/examples"
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the script examples are not beside the repository")
	}
	examples{folder: folder, open: live.Open}.run(t)
}

// Stores are the engine's alone: the oracle has none.
func TestScriptsWithStores(t *testing.T) {
	examples{folder: "testdata/stores", open: live.Open}.run(t)
}

// Random scripts over the real engine, with all its actors, real bytes and the
// hazard checker, answer like the naive oracle. KVACTOR_DUELS sets how many.
func TestEngineAgainstOracle(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	if n, err := strconv.ParseUint(os.Getenv("KVACTOR_DUELS"), 10, 64); err == nil {
		seeds = n
	}
	comparison{got: live.Open, want: openOracle, seeds: seeds, requests: 40}.run(t)
}

// The host pages of a script are those of the split, whatever comes beside.
func TestHostPagesOfScripts(t *testing.T) {
	for _, beside := range []string{``, `"offload_ahead":true`, `"offload_ahead":true},"store":{"name":"s"`} {
		cache := `"host_cache_size":20000`
		if beside != "" {
			cache += "," + beside
		}
		got := answers(t, `{"op":"open","model":{"layers":2,"kv_heads":1,"head_dim":4},"cache":{`+cache+`}}`)
		assert.Contains(t, got[0], `"secondary_pages":19`, cache)
	}
}
