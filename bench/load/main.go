package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 1, "the first seed")
	count := flag.Int("count", 1, "worlds, each with the next seed")
	seconds := flag.Int("seconds", 0, "play worlds for so long instead")
	again := flag.Int("again", 1, "times to play each seed")
	noFaults := flag.Bool("nofaults", false, "no failing copies, no panics")
	auto := flag.Bool("auto", false, "only worlds with WithAutoRebalance")
	verbose := flag.Bool("v", false, "print each plan")
	hang := flag.Duration("hang", 90*time.Second, "how long a world may take")
	flag.Parse()
	b := bounds{noFaults: *noFaults, auto: *auto}
	start, total, failed, worlds := time.Now(), tally{}, 0, 0
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	more := func(i int) bool {
		if *seconds > 0 {
			return time.Since(start) < time.Duration(*seconds)*time.Second
		}
		return i < *count
	}
	for i := 0; more(i); i++ {
		s := *seed + uint64(i)
		for range *again {
			p, err := drawPlan(s, b)
			if *verbose {
				fmt.Printf("seed %d: %s\n", s, &p)
			}
			var problems []string
			if err == nil {
				dog := watch(p, b, *hang)
				problems = total.play(p)
				dog.Stop()
			} else {
				problems = []string{err.Error()}
			}
			worlds++
			if len(problems) > 0 {
				failed++
				report(p, b, problems)
			}
			select {
			case <-ticker.C:
				fmt.Fprintf(os.Stderr, "%v: %d worlds, %d failed, seed %d, %d rows compared\n",
					time.Since(start).Round(time.Second), worlds, failed, s, total["rows compared"])
			default:
			}
		}
	}
	took := time.Since(start).Round(time.Millisecond)
	fmt.Printf("%s%d worlds in %v, %d failed\n", total, worlds, took, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// play plays a world and adds what has happened in it.
func (t tally) play(p plan) []string {
	counts, problems := play(p)
	for name, n := range counts {
		t[name] += n
	}
	return problems
}

// report prints the problems of a world and how to play it again.
func report(p plan, b bounds, problems []string) {
	fmt.Printf("seed %d: %s\n", p.seed, &p)
	for _, text := range problems {
		fmt.Println("   ", text)
	}
	fmt.Println("  play it again:", replay(p.seed, b))
}

// replay is the command that plays a seed again. Where hosts run side by side it may take
// several times to see the same problem.
func replay(seed uint64, b bounds) string {
	text := fmt.Sprintf("go run ./bench/load -seed %d -count 1 -again 20", seed)
	if b.noFaults {
		text += " -nofaults"
	}
	if b.auto {
		text += " -auto"
	}
	return text
}
