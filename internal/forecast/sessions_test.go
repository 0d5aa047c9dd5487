package forecast

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSessionsAgainstSets compares the session ends with lists of eight, one for each set, that forget their
// oldest end.
func TestSessionsAgainstSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSessions(4 * ways)
		newFilter(&watch{}, &s)
		known := map[uint64]session{} // by signature
		r := Request{Signatures: make([]uint64, 1)}
		for now := range uint32(rapid.IntRange(1, 300).Draw(t, "steps")) {
			r.Signatures[0] = mixed(rapid.Uint64Range(0, 80).Draw(t, "block"))
			e, blocks := s.continued(r.Signatures, []int32{0}, now)
			before, ok := known[r.Signatures[0]]
			require.Equal(t, ok, blocks == 1)
			if ok {
				require.Equal(t, before.tokens, e.tokens)
				require.Equal(t, min(before.turn+1, mostTurns), e.turn)
				delete(known, r.Signatures[0])
				continue
			}
			e = session{time: now, tokens: int32(now), turn: uint8(now % 4)}
			s.end(r.Signatures[0], e)
			known[r.Signatures[0]] = e
			set, n, oldest := s.setOf(hashOf(r.Signatures[0])), 0, r.Signatures[0]
			for other, end := range known {
				if s.setOf(hashOf(other)) == set {
					if n++; end.time < known[oldest].time {
						oldest = other
					}
				}
			}
			if n > ways {
				delete(known, oldest)
			}
			require.Equal(t, len(known), s.n)
			require.NoError(t, s.check())
		}
	})
}

// TestSessionEnds: the end of a session has all of it, within its limits.
func TestSessionEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := session{
			rapid.Uint32().Draw(t, "time"), rapid.Int32Range(0, 1<<25).Draw(t, "tokens"), rapid.Int16().Draw(t, "scale"),
			rapid.Int8().Draw(t, "pace"), rapid.Uint8Range(0, 5).Draw(t, "turn"),
		}
		var end sessionEnd
		end.note(&e)
		e.tokens, e.turn, e.scale = min(e.tokens, mostTokens), min(e.turn, mostTurns), max(-mostScale, min(e.scale, mostScale))
		require.Equal(t, e, end.session(e.time))
	})
}

// TestPaceFollowsGaps: a session whose gaps are all as expected keeps a pace of 0, and one that is always late or early
// by more than clipError gets the most or the least pace.
func TestPaceFollowsGaps(t *testing.T) {
	for _, c := range []struct {
		gap   uint32 // stamps
		scale float64
		pace  uint8
	}{{62, 0.69, 8}, {62 * 100, 0.69, 16}, {62, 4.6, 0}} {
		s := newSessions(ways)
		newFilter(&watch{}, &s)
		r := Request{Signatures: []uint64{77}}
		e := session{}
		for range 40 {
			s.end(77, session{scale: fixed(float32(c.scale)), pace: e.pace})
			e, _ = s.continued(r.Signatures, []int32{0}, c.gap)
		}
		assert.Equal(t, c.pace, paceFeature(e.pace), "%d stamps after an expected gap of e^%v s", c.gap, c.scale)
	}
}
