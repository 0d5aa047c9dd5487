package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/windows"
)

// counting is a gate of one pool that has no room by itself.
type counting struct{ dropped int }

// Room implements SaveGate.
func (*counting) Room(room []int) { room[0] = 0 }

// Dropped implements SaveGate.
func (g *counting) Dropped(pages int) { g.dropped += pages }

// Whatever pools lose and get meanwhile, each page that waits is counted and taken once, and
// each that was lost while it waited is dropped once.
func TestWaitingPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gate := &counting{}
		s := newSaves(
			&Config{Pools: make([]windows.Pool, 1), Store: &StoreConfig{Policy: SaveOnCommit, Gate: gate}})
		waiting, dropped := map[protocol.BlockID]bool{}, 0
		done := map[protocol.BlockID]bool{}
		effect := func(kind protocol.EffectKind, b protocol.BlockID) {
			s.noteEffect(&protocol.Effect{Kind: kind, Blocks: []protocol.BlockID{b}})
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			b := protocol.BlockID(rapid.IntRange(0, 4).Draw(t, "block"))
			switch rapid.SampledFrom([]string{"store", "store", "lose", "fetch", "take"}).Draw(t, "step") {
			case "store":
				effect(protocol.Attach, b)
				if !done[b] {
					waiting[b] = true
				}
			case "lose":
				effect(protocol.Detach, b)
				if waiting[b] {
					dropped++
				}
				delete(waiting, b)
				delete(done, b)
			case "fetch":
				effect(protocol.HostAttach, b)
				delete(waiting, b)
				done[b] = true
			case "take":
				s.room[0] = rapid.IntRange(0, 3).Draw(t, "room")
				want := min(s.room[0], len(waiting))
				taken := s.take(0, nil)
				require.Len(t, taken, want)
				for _, b := range taken {
					require.True(t, waiting[b], "block %d does not wait", b)
					s.mark(0, b).done = true
					delete(waiting, b)
					done[b] = true
				}
			}
			require.Equal(t, len(waiting), s.waits(s.offered))
			require.Equal(t, dropped, gate.dropped)
		}
	})
}
