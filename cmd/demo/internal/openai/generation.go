package openai

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// generation is what one HTTP request generates: a request of the scheduler for each
// prompt. The scheduler writes pieces, the handler reads them. There are at most as
// many as tokens were asked for, so a slow client holds nothing up.
type generation struct {
	params   *params
	form     form
	words    *token.Tokenizer
	top      int // alternatives of each token that are reported; −1: no logprobs
	requests []scheduler.Request

	mu      sync.Mutex
	wake    chan struct{} // one place: pieces were added, or the last choice ended
	pieces  []piece
	choices []choice
	open    int
	usage   usage
	failed  error
}

// piece is a part of a choice's text.
type piece struct {
	choice   int
	text     string
	logprobs []logprob
	finish   string // "": more follows
}

// usage counts tokens.
type usage struct {
	Prompt     int           `json:"prompt_tokens"`
	Completion int           `json:"completion_tokens"`
	Total      int           `json:"total_tokens"`
	Details    promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

func (v *Server) newGeneration(p *params, f form) *generation {
	return &generation{params: p, form: f, words: v.config.Words, top: -1, wake: make(chan struct{}, 1)}
}

// add adds a prompt.
func (g *generation) add(q scheduler.Request) {
	q.Sink = &sink{g, len(g.choices)}
	for range q.Choices {
		g.choices = append(g.choices, choice{})
		g.open++
	}
	g.usage.Prompt += len(q.Tokens)
	g.requests = append(g.requests, q)
}

// take waits for pieces and gives them. No choice is open after the last ones.
func (g *generation) take(done <-chan struct{}) (list []piece, open bool, failed error) {
	for {
		g.mu.Lock()
		list, open, failed = g.pieces, g.open > 0, g.failed
		g.pieces = nil
		g.mu.Unlock()
		if len(list) > 0 || !open {
			return list, open, failed
		}
		select {
		case <-g.wake:
		case <-done:
			done = nil // the scheduler ends the choices
		}
	}
}

// sink takes what is generated behind one prompt.
type sink struct {
	g     *generation
	first int // choice of the generation
}

// Started counts what was reused.
func (s *sink) Started(r scheduler.Reuse) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.usage.Details.Cached += r.Tokens
}

// Token adds a token's text. It ends the choice at a stop text.
func (s *sink) Token(i int, t messages.Token, logits []float32) bool {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage.Completion++
	c := &g.choices[s.first+i]
	offset := len(c.text)
	c.text = g.words.Append(c.text, t)
	if g.top >= 0 {
		c.logprobs = append(c.logprobs, g.logprob(t, logits, offset))
	}
	stopped := c.stop(g.params.Stop)
	g.send(s.first+i, c.ready(g.params.Stop, stopped), "")
	return !stopped
}

// Ended writes the last piece of a choice.
func (s *sink) Ended(i int, reason scheduler.Reason, err error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	switch reason {
	case scheduler.Stopped:
		g.send(s.first+i, g.choices[s.first+i].rest(), "stop")
	case scheduler.Length:
		g.send(s.first+i, g.choices[s.first+i].rest(), "length")
	default:
		if g.failed == nil {
			g.failed = err
		}
	}
	g.poke()
}

// send adds a piece, unless it says nothing.
func (g *generation) send(i int, text, finish string) {
	c := &g.choices[i]
	if text == "" && finish == "" {
		return
	}
	g.pieces = append(g.pieces, piece{i, text, c.logprobs, finish})
	c.logprobs = nil
	g.poke()
}

func (g *generation) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// choice is the text of one choice. text[:sent] is with the client; the rest waits for
// the end of a character, or to see whether a stop text begins in it. So a stop text is
// never sent in part.
type choice struct {
	text     []byte
	sent     int       // bytes of text
	logprobs []logprob // of tokens since the last piece
}

// stop cuts the text at the first stop text in it, which can only end in what was not
// sent. It tells whether there is one.
func (c *choice) stop(stops []string) bool {
	first := -1
	for _, s := range stops {
		if i := bytes.Index(c.text[c.sent:], []byte(s)); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		c.text = c.text[:c.sent+first]
	}
	return first >= 0
}

// ready gives the text that can be sent: without a character that is not complete, and
// without an end that may become a stop text.
func (c *choice) ready(stops []string, stopped bool) string {
	if stopped {
		return ""
	}
	text := c.text[c.sent:]
	keep := incomplete(text)
	for _, s := range stops {
		for n := min(len(s)-1, len(text)); n > keep; n-- {
			if bytes.HasSuffix(text, []byte(s[:n])) {
				keep = n
				break
			}
		}
	}
	c.sent += len(text) - keep
	return strings.ToValidUTF8(string(text[:len(text)-keep]), "\uFFFD")
}

// rest gives what was not sent.
func (c *choice) rest() string {
	text := string(c.text[c.sent:])
	c.sent = len(c.text)
	return strings.ToValidUTF8(text, "\uFFFD")
}

// incomplete is the number of bytes at the end that begin a character.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// logprob is the probability of a token, and of the likeliest ones in its place.
type logprob struct {
	chosen scored
	top    []scored
	offset int // of the token in the text
}

type scored struct {
	text    string
	logprob float64
}

// leastLogprob stands for what JSON cannot write, as in OpenAI's API.
const leastLogprob = -9999

// logprob computes the logarithm of a token's probability before temperature.
func (g *generation) logprob(t messages.Token, logits []float32, offset int) logprob {
	top := float64(slices.Max(logits))
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	score := func(t int) scored {
		return scored{string(g.words.Append(nil, messages.Token(t))), max(leastLogprob, float64(logits[t])-top-math.Log(sum))}
	}
	out := logprob{chosen: score(int(t)), offset: offset}
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	for _, i := range order[:min(g.top, len(order))] {
		out.top = append(out.top, score(i))
	}
	return out
}
