package windows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// All host pages of a pool together are as many as Split has given it.
func TestDivideHost(t *testing.T) {
	for _, tc := range []struct {
		n     PageCounts
		ahead bool
		save  int
		want  HostPages
	}{
		{PageCounts{Primary: 50, Secondary: 64}, true, 0, HostPages{Contents: 57, Ahead: 7}},
		{PageCounts{Primary: 8, Secondary: 64}, true, 0, HostPages{Contents: 63, Ahead: 1}},
		{PageCounts{Primary: 50, Secondary: 64}, false, 0, HostPages{Contents: 64}},
		{PageCounts{Primary: 40, Secondary: 64}, true, 500, HostPages{Contents: 43, Ahead: 5, Save: 16}},
		{PageCounts{Primary: 40, Secondary: 64}, false, 3, HostPages{Contents: 61, Save: 3}},
		{PageCounts{Primary: 40, Secondary: 3}, true, 500, HostPages{Contents: 1, Ahead: 1, Save: 1}},
		{PageCounts{Primary: 40, Secondary: 2}, true, 500, HostPages{Contents: 1, Save: 1}},
		{PageCounts{Primary: 40, Secondary: 1}, true, 500, HostPages{Contents: 1}},
		{PageCounts{Primary: 40}, true, 500, HostPages{}},
	} {
		assert.Equal(t, tc.want, DivideHost(tc.n, tc.ahead, tc.save), tc)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := PageCounts{rapid.IntRange(1, 2000).Draw(t, "primary"),
			rapid.IntRange(0, 2000).Draw(t, "secondary")}
		ahead, save := rapid.Bool().Draw(t, "ahead"), rapid.IntRange(0, 3000).Draw(t, "save")
		h := DivideHost(n, ahead, save)
		require.Equal(t, n.Secondary, h.Total())
		require.Equal(t, n.Secondary > 0, h.Contents > 0)
		require.False(t, h.Ahead < 0 || h.Save < 0 || h.Save > save)
		if !ahead {
			return
		}
		// An engine that is given the contents as they are would add as many, but for a page.
		require.InDelta(t, AheadPages(PageCounts{n.Primary, h.Contents}), h.Ahead, 1)
	})
}
