package chats

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
)

// Player plays chats on a scheduler that runs.
type Player struct {
	Scheduler *scheduler.Scheduler
	Words     *token.Tokenizer
	Form      token.Form
	Clients   int    // chats at a time
	Progress  func() // called after each turn, from any goroutine; nil: not
}

// Reply is the answer of one turn.
type Reply struct {
	Tokens []messages.Token
	Text   string
	Right  bool
	Prompt int           // tokens
	Reused int           // of these
	First  time.Duration // until the first token
}

// longestAnswer bounds an answer in tokens.
const longestAnswer = 32

// Play plays all chats and gives the replies of each. Every second chat is sampled at
// random, with a seed of its own.
func (p *Player) Play(ctx context.Context, list []Chat) ([][]Reply, error) {
	replies := make([][]Reply, len(list))
	clients, ctx := errgroup.WithContext(ctx)
	clients.SetLimit(p.Clients)
	for i := range list {
		clients.Go(func() (err error) {
			if err = ctx.Err(); err == nil {
				replies[i], err = p.chat(ctx, list[i], i)
			}
			return err
		})
	}
	if err := clients.Wait(); err != nil {
		return nil, err
	}
	return replies, nil
}

// chat plays one chat, turn by turn.
func (p *Player) chat(ctx context.Context, c Chat, number int) ([]Reply, error) {
	said := []token.Message{{Role: "system", Text: c.System}}
	var replies []Reply
	for i, turn := range c.Turns {
		said = append(said, token.Message{Role: "user", Text: turn.Question})
		prompt, err := p.Words.Encode(p.Form.Write(said))
		if err != nil {
			return nil, err
		}
		q := scheduler.Request{Tokens: prompt, New: longestAnswer, Stops: p.Form.Stops(p.Words)}
		if number%2 == 1 {
			q.Sampling = scheduler.Sampling{Temperature: 0.7, TopP: 0.9,
				Seed: uint64(number*len(c.Turns) + i)}
		}
		reply, err := p.ask(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("chat %d, turn %d: %w", number, i, err)
		}
		reply.Text = strings.TrimSpace(p.Words.Decode(reply.Tokens))
		reply.Prompt, reply.Right = len(prompt), reply.Text == turn.Answer
		replies = append(replies, reply)
		said = append(said, token.Message{Role: "assistant", Text: reply.Text})
		if p.Progress != nil {
			p.Progress()
		}
	}
	return replies, nil
}

// ask waits for the answer of one request.
func (p *Player) ask(ctx context.Context, q scheduler.Request) (Reply, error) {
	l := &listener{begin: time.Now(), ended: make(chan error, 1)}
	q.Sink = l
	if err := p.Scheduler.Submit(ctx, q); err != nil {
		return Reply{}, err
	}
	err := <-l.ended
	return l.Reply, err
}

// listener is the sink of one request.
type listener struct {
	Reply
	begin time.Time
	ended chan error
}

// Started notes what was reused.
func (l *listener) Started(r scheduler.Reuse) { l.Reused = r.Tokens }

// Prompt is not called: no request asks for it.
func (l *listener) Prompt(int, [][]float32) {}

// Token keeps a token of the answer.
func (l *listener) Token(_ int, t scheduler.Sampled) bool {
	if l.First == 0 {
		l.First = time.Since(l.begin)
	}
	if !t.Stop {
		l.Tokens = append(l.Tokens, t.Token)
	}
	return true
}

// Ended ends the wait.
func (l *listener) Ended(_ int, _ scheduler.Reason, err error) { l.ended <- err }

// Same counts the replies of two runs, and those with the same tokens.
func Same(a, b [][]Reply) (same, all int) {
	for i := range a {
		for j := range a[i] {
			all++
			if i < len(b) && j < len(b[i]) && slices.Equal(a[i][j].Tokens, b[i][j].Tokens) {
				same++
			}
		}
	}
	return same, all
}
