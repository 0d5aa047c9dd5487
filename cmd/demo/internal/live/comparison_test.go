package live_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// comparison runs the same random scripts over two engines and compares their
// answers: the engine against the oracle, an engine with one schedule of its
// device against another.
type comparison struct {
	got, want script.OpenFunc
	seeds     uint64 // 0 to seeds−1
	requests  int    // of each script, about
}

// run compares the answers for all seeds. A failure names the seed, the request and both answers.
func (c comparison) run(t *testing.T) {
	t.Helper()
	for seed := range c.seeds {
		if err := c.compareSeed(seed); err != nil {
			t.Error(err)
		}
	}
}

// compareSeed compares the answers to the script of one seed.
func (c comparison) compareSeed(seed uint64) error {
	requests := randomScript(seed, c.requests)
	var got, want bytes.Buffer
	if err := script.Run(bytes.NewReader(requests), &want, c.want); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	if err := script.Run(bytes.NewReader(requests), &got, c.got); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	err := equalAnswers(got.Bytes(), want.Bytes(), protocol)
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
