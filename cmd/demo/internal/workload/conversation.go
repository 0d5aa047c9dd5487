package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/messages"
)

// Range is a closed interval of token counts.
type Range struct{ Least, Most int }

// Config describes a workload.
type Config struct {
	Seed          uint64
	Conversations int
	Turns         Range
	Assistants    int   // different system prompts
	System        Range // tokens of a system prompt
	User          Range // tokens of a user's message
	Answer        Range // tokens of an answer
	// Starts is over how long conversations begin, Pause the mean time between
	// an answer and the next message.
	Starts, Pause time.Duration
}

// Default is the workload of the demo: some hundred conversations of which a
// part fits into device memory.
func Default() Config {
	return Config{
		Seed: 1, Conversations: 600, Turns: Range{2, 10}, Assistants: 12,
		System: Range{200, 2400}, User: Range{20, 400}, Answer: Range{20, 250},
		Starts: 120 * time.Second, Pause: 15 * time.Second,
	}
}

// Token values: a system prompt, a user and an answer never say the same thing,
// and two conversations differ in the first token of every message.
const (
	systemSpace       = 1 << 28
	conversationSpace = 2 << 28
	spaceMask         = 1<<28 - 1
)

// mix scatters a number over 64 bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// conversation is one user's.
type conversation struct {
	number int
	random *rand.Rand
	turns  int // left
	ready  time.Duration
	tokens []messages.Token // so far
	plan   *Config
}

func newConversation(c *Config, number int) *conversation {
	random := rand.New(rand.NewPCG(c.Seed, mix(uint64(number))))
	v := &conversation{number: number, random: random, plan: c}
	v.turns = v.pick(c.Turns)
	v.ready = time.Duration(random.Float64() * float64(c.Starts))
	assistant := v.assistant()
	length := lengthOf(c, assistant)
	for i := range length {
		v.tokens = append(v.tokens,
			messages.Token(systemSpace+mix(c.Seed^uint64(assistant)<<32^uint64(i))&spaceMask))
	}
	return v
}

// assistant picks one; the k-th is 1/k as popular as the first.
func (v *conversation) assistant() int {
	total := 0.0
	for k := range v.plan.Assistants {
		total += 1 / float64(k+1)
	}
	at := v.random.Float64() * total
	for k := range v.plan.Assistants {
		if at -= 1 / float64(k+1); at < 0 {
			return k
		}
	}
	return v.plan.Assistants - 1
}

// lengthOf is the length of an assistant's system prompt.
func lengthOf(c *Config, assistant int) int {
	return c.System.Least + int(mix(c.Seed+uint64(assistant))%uint64(c.System.Most-c.System.Least+1))
}

// pick draws from a range, short ones more often than long ones.
func (v *conversation) pick(r Range) int {
	share := math.Pow(v.random.Float64(), 2)
	return r.Least + int(share*float64(r.Most-r.Least+1)*0.999999)
}

// say is the token at an index of the conversation.
func (v *conversation) say(index int) messages.Token {
	return messages.Token(
		conversationSpace + mix(v.plan.Seed^uint64(v.number)<<32^uint64(index))&spaceMask)
}

// turn makes the next request, which takes the conversation's tokens with it.
func (v *conversation) turn() *serve.Request {
	for range v.pick(v.plan.User) {
		v.tokens = append(v.tokens, v.say(len(v.tokens)))
	}
	v.turns--
	start := len(v.tokens)
	r := &serve.Request{
		Number: v.number, Session: fmt.Sprintf("chat-%d", v.number),
		Tokens: v.tokens, Prompt: start, Answer: v.pick(v.plan.Answer), Arrival: v.ready,
		Sample: func(i int) messages.Token { return v.say(start + i) },
	}
	v.tokens = nil
	return r
}

// answered takes the tokens back and reports whether there is another turn.
func (v *conversation) answered(r *serve.Request) bool {
	v.tokens = r.Tokens
	pause := v.random.ExpFloat64() * float64(v.plan.Pause)
	v.ready = r.Outcome.Done + time.Duration(pause)
	return v.turns > 0 && !r.Outcome.GivenUp
}
