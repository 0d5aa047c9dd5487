package live_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script/scripttest"
)

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
	scripttest.Duel{Got: live.Open, Want: scripttest.OpenOracle, Seeds: seeds, Requests: 40}.Run(t)
}
