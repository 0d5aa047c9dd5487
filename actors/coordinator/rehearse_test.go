package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// rehearse asks what a batch would be refused for; nothing may change.
func (w *world) rehearse(requests ...messages.AdmitRequest) []messages.Admitted {
	w.t.Helper()
	before := w.picture()
	m := &protocol.DryRunAdmit{Requests: requests}
	w.do(m)
	require.NoError(w.t, m.Err)
	require.Equal(w.t, before, w.picture(), "a rehearsal changed something")
	return m.Results
}

func TestRehearse(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.Counts{{Primary: 6}}})
	w.store(run(0, 9))
	results := w.rehearse(
		messages.AdmitRequest{Tokens: run(0, 20)}, // two blocks are there, three are not
		messages.AdmitRequest{Tokens: nil},
		messages.AdmitRequest{Tokens: run(100, 8)}, // one page is left
		messages.AdmitRequest{Tokens: run(0, full+1)},
		messages.AdmitRequest{Tokens: run(100, 4), Multimodal: []messages.MultimodalItem{{Start: 1, Length: 2}}},
	)
	require.Len(t, results, 5)
	assert.NoError(t, results[0].Err)
	assert.ErrorIs(t, results[1].Err, messages.ErrBadRequest)
	assert.EqualError(t, results[2].Err, "pool wfullh1 needs 2 pages, 1 available")
	assert.ErrorIs(t, results[3].Err, messages.ErrTooLong)
	assert.NoError(t, results[4].Err)
	assert.EqualValues(t, 1, w.stats().Requests, "that of the store")
	assert.Empty(t, w.rehearse())
	assert.ErrorIs(t, w.rehearse(messages.AdmitRequest{})[0].Err, messages.ErrBadRequest)
}

// A rehearsal foretells exactly what the admission answers.
func TestRehearsalsForetellAdmissions(t *gotesting.T) { rapid.Check(t, rehearsals) }

func FuzzRehearsals(f *gotesting.F) { f.Fuzz(rapid.MakeFuzz(rehearsals)) }

func rehearsals(rt *rapid.T) {
	i := rapid.IntRange(0, len(shapesOfWorlds)-1).Draw(rt, "world")
	c := &crowd{world: newWorld(rt, shapesOfWorlds[i]), rt: rt}
	rt.Repeat(map[string]func(*rapid.T){
		"batch": func(*rapid.T) {
			var requests []messages.AdmitRequest
			for range c.draw(1, 4, "requests") {
				requests = append(requests, c.request())
			}
			foretold := c.rehearse(requests...)
			results, lives := c.admitBatch(requests...)
			for k := range results {
				require.Equal(rt, foretold[k].Err, results[k].Err, "item %d", k)
			}
			c.prefillSome(lives)
		},
		"release": func(*rapid.T) { c.releaseSome() },
	})
	c.end()
}
