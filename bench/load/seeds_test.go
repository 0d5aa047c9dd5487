package load

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed; 0: TestSeeds is skipped")
	worlds    = flag.Int("worlds", 1, "worlds, each with the next seed")
	seconds   = flag.Int("seconds", 0, "play worlds for so long instead")
	again     = flag.Int("again", 1, "times to play each seed")
	noFaults  = flag.Bool("nofaults", false, "no failing copies, no panics")
	auto      = flag.Bool("auto", false, "only worlds with WithAutoRebalance")
	hang      = flag.Duration("hang", 90*time.Second, "how long a world may take")
)

// TestSeeds plays the worlds that its flags name.
func TestSeeds(t *testing.T) {
	if *firstSeed == 0 {
		t.Skip("no -seed")
	}
	b := bounds{noFaults: *noFaults, auto: *auto}
	start, total, played, failed := time.Now(), tally{}, 0, 0
	more := func(i int) bool {
		if *seconds > 0 {
			return time.Since(start) < time.Duration(*seconds)*time.Second
		}
		return i < *worlds
	}
	for i := 0; more(i); i++ {
		for range *again {
			p, err := drawPlan(*firstSeed+uint64(i), b)
			require.NoError(t, err)
			dog := watch(p, b, *hang)
			problems := total.play(p)
			dog.Stop()
			played++
			if len(problems) > 0 {
				failed++
				t.Error(report(p, b, problems))
			}
		}
	}
	fmt.Printf("%s%d worlds in %v, %d failed\n", total, played,
		time.Since(start).Round(time.Millisecond), failed)
}

// play plays a world and adds what has happened in it.
func (t tally) play(p plan) []string {
	counts, problems := play(p)
	for name, n := range counts {
		t[name] += n
	}
	return problems
}

// report tells the problems of a world and how to play it again.
func report(p plan, b bounds, problems []string) string {
	return fmt.Sprintf("seed %d: %s\n    %s\n  play it again: %s", p.seed, &p,
		strings.Join(problems, "\n    "), replay(p.seed, b))
}

// replay is the command that plays a seed again. Where hosts run side by side it may take
// several times to see the same problem.
func replay(seed uint64, b bounds) string {
	text := fmt.Sprintf("go test ./bench/load -run=TestSeeds -seed=%d -again=20", seed)
	if b.noFaults {
		text += " -nofaults"
	}
	if b.auto {
		text += " -auto"
	}
	return text
}
