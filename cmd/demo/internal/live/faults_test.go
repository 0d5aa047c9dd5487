package live_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// answer is what the tests look at.
type answer struct {
	Op       string
	OK       bool
	Error    struct{ Code string }
	Results  []answer
	Problems []string
	Leaked   int `json:"leaked_pages"`
}

// play gives the answers of the real engine to lines.
func play(t *testing.T, lines ...string) []answer {
	t.Helper()
	var out strings.Builder
	require.NoError(t, script.Run(strings.NewReader(strings.Join(lines, "\n")), &out, live.Open))
	all := []answer{}
	for line := range strings.Lines(out.String()) {
		var a answer
		require.NoError(t, json.Unmarshal([]byte(line), &a), line)
		all = append(all, a)
	}
	require.Len(t, all, len(lines))
	return all
}

const openFive = `{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":8},"cache":{"tokens_per_block":4},"pages":{"primary":5,"secondary":2}}`

// A sequence that a failure has taken holds no pages, says so until it is
// released, and can be admitted again.
func TestLostSequencesAreReleased(t *testing.T) {
	lose := []string{
		openFive, `{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"beam_width":2}`,
		`{"op":"fault","kind":"copy"}`,
		`{"op":"append","steps":[{"seq":"A","beams":[{"parent":1,"token":6},{"parent":0,"token":7}]}]}`,
	}
	t.Run("released", func(t *testing.T) {
		all := play(t, append(lose, `{"op":"tables","seq":"A"}`, `{"op":"release","seq":"A"}`,
			`{"op":"release","seq":"A"}`, `{"op":"verify"}`,
			`{"op":"admit","seq":"A","tokens":{"from":9,"count":20}}`, `{"op":"verify"}`,
			`{"op":"close"}`)...)
		require.Len(t, all[3].Results, 1)
		assert.Equal(t, "sequence_lost", all[3].Results[0].Error.Code)
		assert.Equal(t, "sequence_lost", all[4].Error.Code)
		assert.Equal(t, "sequence_lost", all[5].Error.Code)
		assert.Equal(t, "unknown_sequence", all[6].Error.Code)
		assert.True(t, all[8].OK, "the lost sequence holds none of the five pages")
		for _, i := range []int{7, 9} {
			assert.True(t, all[i].OK)
			assert.Empty(t, all[i].Problems)
		}
		assert.Equal(t, 5, all[10].Leaked)
	})
	t.Run("admitted again", func(t *testing.T) {
		all := play(t, append(lose, `{"op":"admit","seq":"A","tokens":{"from":9,"count":20}}`,
			`{"op":"verify"}`, `{"op":"close"}`)...)
		assert.True(t, all[4].OK)
		assert.Empty(t, all[5].Problems)
		assert.Equal(t, 5, all[6].Leaked)
	})
}

// A script may let actors panic as often as it likes, though its clock stands.
func TestPanicsWithoutEnd(t *testing.T) {
	lines := []string{openFive}
	for i := range 10 {
		for _, actor := range []string{"pool:wfullh1", "tree", "offloader", "coordinator"} {
			lines = append(lines, fmt.Sprintf(`{"op":"fault","kind":"panic","actor":%q}`, actor),
				`{"op":"verify"}`,
				fmt.Sprintf(`{"op":"admit","seq":"%d-%s","tokens":{"from":%d,"count":9}}`, i, actor, i),
				fmt.Sprintf(`{"op":"release","seq":"%d-%s"}`, i, actor))
		}
	}
	all := play(t, append(lines, `{"op":"verify"}`, `{"op":"close"}`)...)
	for i, a := range all {
		assert.True(t, a.OK, "%d %s %s", i, a.Op, a.Error.Code)
		assert.Empty(t, a.Problems)
	}
	assert.Zero(t, all[len(all)-1].Leaked)
}
