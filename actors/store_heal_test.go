package actors_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// Engines whose longest sequences differ share objects.
func TestTheLongestLengthIsNoPartOfKeys(t *testing.T) {
	var memory stores.Memory
	first := newRig(t, onePool, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 9))
	assert.Equal(t, 2, flushed(t, first))
	first.close()

	longer := onePool
	longer.windows = []int{2 * full}
	longer.model = func(m *windows.Model) { m.MaxSeqLen = 2 * full }
	second := newRig(t, longer, withStore(&memory, actors.SaveOnCommit))
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 8}, fetched(t, second, run(0, 9)))
	second.close()
}
