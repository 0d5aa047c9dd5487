package live_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Random scripts over models with recurrent layers, in which copies fail and actors
// panic: every request is answered, and what sequences and tree hold afterwards is right
// to the byte.
func TestRandomScriptsOfStatesWithFaults(t *testing.T) {
	played := 0
	for seed := uint64(1); played < 40; seed++ {
		requests := randomScript(seed, 50)
		if !bytes.Contains(requests, []byte(`"state"`)) {
			continue
		}
		played++
		lines := withFaults(seed, strings.Split(strings.TrimSpace(string(requests)), "\n"))
		for i, a := range play(t, lines...) {
			require.Emptyf(t, a.Problems, "seed %d: line %d: %s", seed, i, lines[i])
			require.Truef(t, a.Op != "verify" || a.OK, "seed %d: line %d: %s", seed, i, a.Error.Code)
		}
	}
}

// withFaults adds faults before one request in four of a script, and a verification
// behind some.
func withFaults(seed uint64, lines []string) (out []string) {
	rng := rand.New(rand.NewPCG(seed, 0xfa117))
	for i, line := range lines {
		if i > 0 && i < len(lines)-1 && rng.IntN(4) == 0 {
			kind := []string{"copy", "copy", "onboard", "offload"}[rng.IntN(4)]
			fault := fmt.Sprintf(`{"op":"fault","kind":%q,"count":%d}`, kind, 1+rng.IntN(2))
			if rng.IntN(2) == 0 {
				actor := []string{"pool:state", "pool:state", "tree", "offloader", "coordinator"}[rng.IntN(5)]
				fault = fmt.Sprintf(`{"op":"fault","kind":"panic","actor":%q}`, actor)
			}
			out = append(out, fault)
		}
		if out = append(out, line); i > 0 && i < len(lines)-1 && rng.IntN(8) == 0 {
			out = append(out, `{"op":"verify"}`)
		}
	}
	return out
}
