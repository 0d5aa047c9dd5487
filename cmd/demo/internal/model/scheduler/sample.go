package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/messages"
)

// Sampling says how a token is chosen from its logits.
type Sampling struct {
	Temperature float64 // 0: the most likely token, always
	// TopP limits the choice to the most likely tokens that together have this
	// probability; 0 and 1: all.
	TopP float64
	Seed uint64
}

// source is the source of random numbers of one choice.
func (s Sampling) source(choice int) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed, uint64(choice))) //nolint:gosec // sampling must be repeatable
}

// candidate is a token and its weight.
type candidate struct {
	token  messages.Token
	weight float64
}

// sample chooses a token. It draws exactly one number unless Temperature is 0.
func (s Sampling) sample(logits []float32, rng *rand.Rand) messages.Token {
	if s.Temperature == 0 {
		return model.Greedy(logits)
	}
	top := float64(logits[model.Greedy(logits)])
	all, sum := make([]candidate, len(logits)), 0.0
	for i, x := range logits {
		w := math.Exp((float64(x) - top) / s.Temperature)
		all[i] = candidate{messages.Token(i), w}
		sum += w
	}
	if s.TopP > 0 && s.TopP < 1 {
		all, sum = nucleus(all, s.TopP*sum)
	}
	left := rng.Float64() * sum
	for _, c := range all {
		if left -= c.weight; left < 0 {
			return c.token
		}
	}
	return all[len(all)-1].token // rounding
}

// nucleus keeps the heaviest candidates until they weigh as much as asked. It always
// keeps one.
func nucleus(all []candidate, weight float64) (kept []candidate, sum float64) {
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return int(a.token - b.token)
	})
	for i, c := range all {
		if sum += c.weight; sum >= weight {
			return all[:i+1], sum
		}
	}
	return all, sum
}
