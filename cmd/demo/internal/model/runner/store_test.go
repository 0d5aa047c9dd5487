package runner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// An engine that is opened on the store of one that has closed reuses what that one
// computed, with the same bits: keys, values and states alike.
func TestRestartFromAStore(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			f := fixture(t, name)
			a := newReference(t, f, runner.Config{})
			var store stores.Memory
			for run := range 3 {
				r := open(t, f, runner.Config{
					TokensPerBlock: 4, Chunk: 8, HostPages: 60, Seed: int64(run), Fetch: time.Minute,
					Adjust: func(c *windows.Config) { c.SecondaryOffloadMinPriority = 0 },
					Options: []actors.Option{actors.WithStore(actors.StoreConfig{
						Store: &store, Model: f.Name, Save: actors.SaveOnCommit, WaitForCopies: true,
					})},
				})
				for _, i := range []int{2, 3} {
					h := begin(t, r, runner.Request{Tokens: f.Cases[i].Tokens, Encoder: f.Cases[i].Encoder})
					if run > 0 {
						assert.GreaterOrEqual(t, h.Reused, (len(f.Cases[i].Tokens)-1)/4*4, "prompt %d, run %d", i,
							run)
						assert.Positive(t, h.Onboarded)
					}
					h.generate(t, r, answerLen)
					h.check(t, a, "from a store")
					h.end(t, r)
				}
				_, err := actors.StoreOf(r.Engine.Actors()).Flush(t.Context(), 0)
				require.NoError(t, err)
			}
		})
	}
}
