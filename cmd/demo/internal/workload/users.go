package workload

import (
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/internal/heap"
)

// Users are the conversations of one host: a serve.Source. They belong to the
// host's goroutine; Answered may be read by any.
type Users struct {
	byNumber map[int]*conversation
	due      []*conversation // a heap in the order of byDue
	answered atomic.Int64
}

// Share splits the conversations of a workload between hosts.
func Share(c Config, hosts int) []*Users {
	users := make([]*Users, hosts)
	for i := range users {
		users[i] = &Users{byNumber: map[int]*conversation{}}
	}
	for n := range c.Conversations {
		v := newConversation(&c, n)
		u := users[n%hosts]
		u.byNumber[n] = v
		heap.Push(&u.due, byDue{}, v)
	}
	return users
}

// Requests is how many requests the conversations of a workload will make, if
// none of them is given up.
func Requests(users []*Users) int {
	n := 0
	for _, u := range users {
		for _, v := range u.byNumber {
			n += v.turns
		}
	}
	return n
}

// Answered is how many requests have been given back so far.
func (u *Users) Answered() int { return int(u.answered.Load()) }

// Next gives the request that has been due for the longest.
func (u *Users) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if len(u.due) == 0 || load == serve.Working && u.due[0].ready > now {
		return nil, nil
	}
	return heap.Pop(&u.due, byDue{}).turn(), nil
}

// Done continues the conversation, after a pause.
func (u *Users) Done(r *serve.Request) error {
	u.answered.Add(1)
	if v := u.byNumber[r.Number]; v.answered(r) {
		heap.Push(&u.due, byDue{}, v)
	} else {
		delete(u.byNumber, r.Number)
	}
	return nil
}

// byDue orders conversations: who is due first, then the lower number.
type byDue struct{}

// Before implements heap.Order.
func (byDue) Before(a, b *conversation) bool {
	if a.ready != b.ready {
		return a.ready < b.ready
	}
	return a.number < b.number
}

// Moved does nothing: no conversation is removed but the first.
func (byDue) Moved(*conversation, int) {}
