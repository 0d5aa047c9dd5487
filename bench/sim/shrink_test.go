package sim

import (
	"fmt"
	"maps"
	"strings"
)

// kind is the beginning of a failure without its numbers.
func kind(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	text = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
	const compared = 32
	return text[:min(len(text), compared)]
}

// shrink leaves out steps as long as the run still fails in the same way, halving
// the stretches it tries, and gives the smallest plan it has found. tries
// bounds the runs.
func shrink(p plan, failedAt, tries int, like error) plan {
	best := p
	best.steps, best.skip = min(p.steps, failedAt+1), map[int]bool{}
	fails := func(q plan) bool {
		tries--
		_, err := run(q)
		return kind(err) == kind(like)
	}
	for size := best.steps / 2; size >= 1 && tries > 0; size /= 2 {
		for from := best.steps; from > 0 && tries > 0; from -= size {
			q := best
			q.skip = maps.Clone(best.skip)
			new := false
			for i := max(0, from-size); i < from; i++ {
				new = new || !q.skip[i]
				q.skip[i] = true
			}
			if new && fails(q) {
				best = q
			}
		}
	}
	return best
}

// explain replays a plan and prints its history, the last lines of it.
func explain(p plan, lines int) string {
	p.tell = true
	w, err := run(p)
	if w == nil {
		return fmt.Sprintf("%v\n", err)
	}
	text := fmt.Sprintf("%s\n%d of %d steps are left:\n", &w.setup, p.steps-len(p.skip), p.steps)
	from := max(0, len(w.history)-lines)
	if from > 0 {
		text += fmt.Sprintf("  … %d lines\n", from)
	}
	for _, line := range w.history[from:] {
		text += line + "\n"
	}
	return text + fmt.Sprintf("FAILED: %v\n", err)
}
