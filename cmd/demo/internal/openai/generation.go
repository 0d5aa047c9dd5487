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
	request  *request
	form     form
	words    *token.Tokenizer
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
	tokens   []messages.Token // if they were asked for
	finish   string           // "": more follows
	prompt   *prompt          // of the first piece, if something of it was asked for
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

func (v *Server) newGeneration(q *request, f form) *generation {
	return &generation{request: q, form: f, words: v.config.Words, wake: make(chan struct{}, 1)}
}

// prompt is what is told of a prompt.
type prompt struct {
	tokens   []messages.Token
	text     string
	logprobs []logprob // by token; none of the first
	ids      bool
	top      int // of prompt_logprobs; −1: they were not asked for
}

// newPrompt prepares what is told of a prompt.
func (g *generation) newPrompt(tokens []messages.Token, logits bool) *prompt {
	p := &prompt{tokens: tokens, ids: g.request.ids, top: g.request.promptTop}
	var text []byte
	for _, t := range tokens {
		if logits {
			p.logprobs = append(p.logprobs, logprob{chosen: g.scored(t, 0), offset: len(text)})
		}
		text = g.words.Append(text, t)
	}
	p.text = strings.ToValidUTF8(string(text), "\uFFFD")
	return p
}

// add adds a prompt.
func (g *generation) add(q scheduler.Request) {
	p := g.newPrompt(q.Tokens, q.PromptLogits)
	q.Sink = &sink{g, p, len(g.choices), q.Choices}
	for range q.Choices {
		c := choice{}
		if p.ids || p.top >= 0 {
			c.prompt = p
		}
		if g.request.echo {
			c.before = len(p.text)
		}
		g.choices = append(g.choices, c)
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
	g       *generation
	prompt  *prompt
	first   int // choice of the generation
	choices int
}

// Prompt scores the tokens of the prompt.
func (s *sink) Prompt(at int, rows [][]float32) {
	g := s.g
	for i, row := range rows {
		l := &s.prompt.logprobs[at+1+i]
		*l = g.logprob(l.chosen.token, row, l.offset, max(g.request.top, g.request.promptTop))
	}
}

// Started counts what was reused, and repeats the prompt if there is an echo.
func (s *sink) Started(r scheduler.Reuse) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage.Details.Cached += r.Tokens
	if !g.request.echo {
		return
	}
	for i := range s.choices {
		if g.request.top >= 0 {
			g.choices[s.first+i].logprobs = slices.Clone(s.prompt.logprobs)
		}
		g.send(s.first+i, s.prompt.text, "")
	}
}

// Token adds a token's text. It ends the choice at a stop text.
func (s *sink) Token(i int, t scheduler.Sampled) bool {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage.Completion++
	if g.request.maxTokens == 0 {
		return true // the prompt was asked for, and no more
	}
	c := &g.choices[s.first+i]
	offset := c.before + len(c.text)
	if !t.Stop {
		c.text = g.words.Append(c.text, t.Token)
	}
	if g.request.top >= 0 {
		c.logprobs = append(c.logprobs, g.logprob(t.Token, t.Logits, offset, g.request.top))
	}
	if g.request.ids {
		c.tokens = append(c.tokens, t.Token)
	}
	if c.count++; c.count <= g.request.minTokens {
		c.searched = len(c.text)
	}
	stopped := c.stop(g.request.stop)
	g.send(s.first+i, c.ready(g.request.stop, stopped || t.Stop), "")
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
	g.pieces = append(g.pieces, piece{i, text, c.logprobs, c.tokens, finish, c.prompt})
	c.logprobs, c.tokens, c.prompt = nil, nil, nil
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
	sent     int // bytes of text
	searched int // bytes of text in which no stop text counts, since there were too few tokens
	before   int // bytes of the prompt, if it is repeated
	count    int // tokens
	// Of tokens since the last piece, and of the prompt before the first.
	logprobs []logprob
	tokens   []messages.Token
	prompt   *prompt
}

// stop cuts the text at the first stop text in it, which can only end in what was not
// sent. It tells whether there is one.
func (c *choice) stop(stops []string) bool {
	first, from := -1, max(c.sent, c.searched)
	for _, s := range stops {
		if i := bytes.Index(c.text[from:], []byte(s)); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		c.text = c.text[:from+first]
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
	rank   int // of the chosen one, from 1 on; 0: it has no probability, as nothing is before it
	offset int // of the token in the text
}

type scored struct {
	token   messages.Token
	text    string
	logprob float64
}

func (g *generation) scored(t messages.Token, logprob float64) scored {
	return scored{t, string(g.words.Append(nil, t)), logprob}
}

// leastLogprob stands for what JSON cannot write, as in OpenAI's API.
const leastLogprob = -9999

// logprob computes the logarithm of a token's probability before temperature, and those of
// the n likeliest.
func (g *generation) logprob(t messages.Token, logits []float32, offset, n int) logprob {
	top, rank := float64(slices.Max(logits)), 0
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
		if x >= logits[t] {
			rank++
		}
	}
	score := func(t messages.Token) scored {
		return g.scored(t, max(leastLogprob, float64(logits[t])-top-math.Log(sum)))
	}
	out := logprob{chosen: score(t), offset: offset, rank: rank}
	for _, t := range likeliest(logits, n) {
		out.top = append(out.top, score(t))
	}
	return out
}

// likeliest are the n tokens with the largest logits, the first of equal ones first.
func likeliest(logits []float32, n int) (best []messages.Token) {
	for t, x := range logits {
		if len(best) == n && (n == 0 || x <= logits[best[n-1]]) {
			continue
		}
		at := len(best)
		for at > 0 && x > logits[best[at-1]] {
			at--
		}
		best = slices.Insert(best, at, messages.Token(t))
		best = best[:min(n, len(best))]
	}
	return best
}
