package scripttest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// Duel runs the same random scripts over two engines and compares their
// answers: the engine against the oracle, an engine with one schedule of its
// device against another.
type Duel struct {
	Got, Want script.OpenFunc
	Seeds     uint64 // 0 to Seeds−1
	Requests  int    // of each script, about
}

// Run fights all seeds. A failure names the seed, the request and both answers.
func (d Duel) Run(t *testing.T) {
	t.Helper()
	for seed := range d.Seeds {
		if err := d.Fight(seed); err != nil {
			t.Error(err)
		}
	}
}

// Fight compares the answers to one script.
func (d Duel) Fight(seed uint64) error {
	requests := Random(seed, d.Requests)
	var got, want bytes.Buffer
	if err := script.Run(bytes.NewReader(requests), &want, d.Want); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	if err := script.Run(bytes.NewReader(requests), &got, d.Got); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	err := script.Equal(got.Bytes(), want.Bytes(), script.Protocol)
	if err == nil {
		return nil
	}
	// Every line of a random script is a request, so answers count them.
	var n int
	if _, scan := fmt.Sscanf(err.Error(), "answer %d:", &n); scan != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	return fmt.Errorf("seed %d: request %d: %s: %w", seed, n, bytes.Split(requests, []byte("\n"))[n-1], err)
}
