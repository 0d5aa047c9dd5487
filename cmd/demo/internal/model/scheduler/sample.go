package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/messages"
)

// Sampling says how a token is chosen from its logits. The order is that of vLLM: banned
// tokens, Bias, RepetitionPenalty, FrequencyPenalty and PresencePenalty change the logits;
// then Temperature, MinP, TopK and TopP choose.
type Sampling struct {
	Temperature float64 // 0: the most likely token, always
	// TopP limits the choice to the most likely tokens that together have this
	// probability; 0 and 1: all.
	TopP float64
	TopK int     // limits it to so many of the most likely tokens; 0: all
	MinP float64 // limits it to tokens at least so likely, as a share of the likeliest
	// RepetitionPenalty divides the positive logits of tokens that are in the prompt or in the
	// text so far, and multiplies the negative ones; 0 and 1: none.
	RepetitionPenalty float64
	// FrequencyPenalty is subtracted for each occurrence in the text so far, without the
	// prompt, and PresencePenalty once.
	FrequencyPenalty, PresencePenalty float64
	Bias                              map[messages.Token]float64 // added to logits
	Seed                              uint64
}

// past is what was before the token that is to be chosen.
type past struct {
	prompt, generated []messages.Token
	banned            map[messages.Token]bool // these must not be chosen
}

// source is the source of random numbers of one choice.
func (s *Sampling) source(choice int) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed, uint64(choice))) //nolint:gosec // sampling must be repeatable
}

// candidate is a token and its weight.
type candidate struct {
	token  messages.Token
	weight float64
}

// sample chooses a token. It draws exactly one number unless Temperature is 0.
func (s *Sampling) sample(logits []float32, rng *rand.Rand, before past) messages.Token {
	logits = s.adjust(logits, before)
	if s.Temperature == 0 {
		return model.Greedy(logits)
	}
	top := float64(logits[model.Greedy(logits)])
	all := make([]candidate, 0, len(logits))
	for i, x := range logits {
		if w := math.Exp((float64(x) - top) / s.Temperature); w >= s.MinP {
			all = append(all, candidate{messages.Token(i), w})
		}
	}
	limited := s.TopP > 0 && s.TopP < 1
	if limited || s.TopK > 0 {
		slices.SortFunc(all, heaviest)
	}
	if s.TopK > 0 {
		all = all[:min(s.TopK, len(all))]
	}
	sum := weight(all)
	if limited {
		all = nucleus(all, s.TopP*sum)
		sum = weight(all)
	}
	left := rng.Float64() * sum
	for _, c := range all {
		if left -= c.weight; left < 0 {
			return c.token
		}
	}
	return all[len(all)-1].token // rounding
}

// adjust gives the logits with bias and penalties. It does not change its argument.
func (s *Sampling) adjust(logits []float32, before past) []float32 {
	penalties := s.FrequencyPenalty != 0 || s.PresencePenalty != 0
	repetition := s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1
	if len(before.banned) == 0 && len(s.Bias) == 0 && !penalties && !repetition {
		return logits
	}
	logits = slices.Clone(logits)
	for t := range before.banned {
		logits[t] = float32(math.Inf(-1))
	}
	for t, x := range s.Bias {
		logits[t] += float32(x)
	}
	if repetition {
		s.penalizeRepetitions(logits, before)
	}
	if penalties {
		for t, n := range counted(before.generated) {
			logits[t] -= float32(s.FrequencyPenalty*float64(n) + s.PresencePenalty)
		}
	}
	return logits
}

func (s *Sampling) penalizeRepetitions(logits []float32, before past) {
	for t := range counted(before.prompt, before.generated) {
		if p := float32(s.RepetitionPenalty); logits[t] > 0 {
			logits[t] /= p
		} else {
			logits[t] *= p
		}
	}
}

// counted counts the tokens of texts.
func counted(texts ...[]messages.Token) map[messages.Token]int {
	n := map[messages.Token]int{}
	for _, text := range texts {
		for _, t := range text {
			n[t]++
		}
	}
	return n
}

// heaviest orders candidates by weight, the heaviest first.
func heaviest(a, b candidate) int {
	switch {
	case a.weight > b.weight:
		return -1
	case a.weight < b.weight:
		return 1
	}
	return int(a.token - b.token)
}

// nucleus keeps the heaviest candidates, which come first, until they weigh as much as asked.
// It always keeps one.
func nucleus(all []candidate, least float64) []candidate {
	sum := 0.0
	for i, c := range all {
		if sum += c.weight; sum >= least {
			return all[:i+1]
		}
	}
	return all
}

func weight(all []candidate) (sum float64) {
	for _, c := range all {
		sum += c.weight
	}
	return sum
}
