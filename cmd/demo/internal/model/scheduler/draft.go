package scheduler

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Lengths of the ends of a text that lookUp looks for, the longest first. One token
// alone says too little about the next.
const (
	longestMatch  = 4
	shortestMatch = 2
)

// lookUp drafts what comes behind a text, at most n tokens: what came behind the last
// earlier occurrence of its end. Texts that quote their prompts are drafted well, and
// the drafts cost nothing but the positions of a step.
func lookUp(text []messages.Token, n int) []messages.Token {
	if n <= 0 {
		return nil
	}
	for length := longestMatch; length >= shortestMatch; length-- {
		if len(text) <= length {
			continue
		}
		end := text[len(text)-length:]
		for at := len(text) - length - 1; at >= 0; at-- {
			if slices.Equal(text[at:at+length], end) {
				return text[at+length : min(at+length+n, len(text))]
			}
		}
	}
	return nil
}
