package live_test

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The engine's answers to the examples are those beside them.
func TestExamplesOverTheEngine(t *testing.T) {
	playExamples(t, "../../testdata/scripts")
}

// So are those to the examples of the protocol itself, where they lie beside the
// checkout.
func TestSharedExamplesOverTheEngine(t *testing.T) {
	const folder = "../../../../../../shared/examples"
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the script examples are not beside the repository")
	}
	playExamples(t, folder)
}

func TestScriptsWithStores(t *testing.T) {
	playExamples(t, "testdata/stores")
}

// Other examples can be run without copying them here.
func TestOtherExamplesOverTheEngine(t *testing.T) {
	if folder := os.Getenv("KVACTOR_EXAMPLES"); folder != "" {
		playExamples(t, folder)
	}
}

// Random scripts over the real engine, with all its actors, real bytes and the hazard checker,
// are served without internal errors and end with the right bytes, and the same script gives
// the same answers, to the byte. KVACTOR_SCRIPTS sets how many.
func TestRandomScripts(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	if n, err := strconv.ParseUint(os.Getenv("KVACTOR_SCRIPTS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		requests := randomScript(seed, 40)
		require.Equal(t, requests, randomScript(seed, 40))
		first, second := answers(t, string(requests)), answers(t, string(requests))
		require.Equalf(t, first, second, "seed %d", seed)
		all := strings.Join(first, "\n")
		require.NotContainsf(t, all, `"code":"internal"`, "seed %d", seed)
		require.Greaterf(t, strings.Count(all, `"ok":true`), 25, "seed %d", seed)
		require.Containsf(t, first[len(first)-2], `"problems":[]`, "seed %d", seed)
	}
}

// The host pages of a script are those of the split, whatever comes beside.
func TestHostPagesOfScripts(t *testing.T) {
	for _, beside := range []string{``, `"offload_ahead":true`,
		`"offload_ahead":true},"store":{"name":"s"`} {
		cache := `"host_cache_size":20000`
		if beside != "" {
			cache += "," + beside
		}
		got := answers(t, `{"op":"open","model":{"layers":2,"kv_heads":1,"head_dim":4},"cache":{`+cache+
			`}}`)
		assert.Contains(t, got[0], `"secondary_pages":19`, cache)
	}
}
