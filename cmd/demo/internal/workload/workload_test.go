package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/messages"
)

// answerAll plays a host that answers at once and gives all prompts by
// conversation, in order.
func answerAll(t *testing.T, u *Users) map[int][][]messages.Token {
	prompts := map[int][][]messages.Token{}
	last := time.Duration(0)
	for {
		r, _ := u.Next(last, serve.Idle)
		if r == nil {
			return prompts
		}
		last = max(last, r.Arrival)
		prompts[r.Number] = append(prompts[r.Number], append([]messages.Token(nil), r.Tokens...))
		for i := range r.Answer {
			r.Tokens = append(r.Tokens, r.Sample(i))
		}
		r.Outcome.Done = last + time.Second
		assert.NoError(t, u.Done(r))
	}
}

func small() Config {
	c := Default()
	c.Conversations = 40
	return c
}

func TestEachTurnContinuesTheConversation(t *testing.T) {
	users := Share(small(), 1)
	want := Requests(users)
	requests := 0
	for _, turns := range answerAll(t, users[0]) {
		requests += len(turns)
		for i, prompt := range turns {
			for _, token := range prompt {
				assert.GreaterOrEqual(t, token, messages.Token(0))
			}
			if i > 0 {
				assert.Equal(t, turns[i-1], prompt[:len(turns[i-1])])
				assert.Greater(t, len(prompt), len(turns[i-1]))
			}
		}
	}
	assert.Equal(t, want, requests)
	assert.Equal(t, want, users[0].Answered())
}

// What is said depends on neither the number of hosts nor the order of service.
func TestHostsDoNotMatter(t *testing.T) {
	one := answerAll(t, Share(small(), 1)[0])
	together := map[int][][]messages.Token{}
	for _, u := range Share(small(), 3) {
		for number, turns := range answerAll(t, u) {
			together[number] = turns
		}
	}
	assert.Equal(t, one, together)
}

func TestAssistantsAreSharedAndConversationsAreNot(t *testing.T) {
	starts := map[messages.Token]int{}
	ends := map[messages.Token]int{}
	for _, turns := range answerAll(t, Share(small(), 1)[0]) {
		starts[turns[0][0]]++
		ends[turns[0][len(turns[0])-1]]++
	}
	assert.LessOrEqual(t, len(starts), Default().Assistants)
	assert.Len(t, ends, 40, "every conversation says something of its own")
}

func TestNoRequestIsServedBeforeItsTime(t *testing.T) {
	u := Share(small(), 1)[0]
	first := u.due[0].ready
	r, _ := u.Next(first-1, serve.Working)
	assert.Nil(t, r)
	r, _ = u.Next(first, serve.Working)
	assert.NotNil(t, r)
}

func TestGivenUpConversationsEnd(t *testing.T) {
	c := small()
	c.Conversations = 1
	u := Share(c, 1)[0]
	r, _ := u.Next(0, serve.Idle)
	r.Outcome.GivenUp = true
	assert.NoError(t, u.Done(r))
	r, _ = u.Next(time.Hour, serve.Idle)
	assert.Nil(t, r)
}
