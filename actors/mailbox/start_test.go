package mailbox

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
)

// invoker is a MessageInvoker that is no actor of the library.
type invoker struct{ got []any }

func (i *invoker) InvokeSystemMessage(x any)  { i.got = append(i.got, x) }
func (i *invoker) InvokeUserMessage(x any)    { i.got = append(i.got, x) }
func (i *invoker) EscalateFailure(any, x any) { i.got = append(i.got, "failed", x) }

func TestStartedComesFirstWhenASenderIsFaster(t *testing.T) {
	worker := NewWorker()
	defer worker.Close()
	m, i := newMailbox(DefaultBudget, nil), &invoker{}
	m.PostUserMessage("before the handlers")
	m.RegisterHandlers(i, worker)
	m.PostUserMessage("before the start")
	m.PostSystemMessage(&actor.Started{})
	assert.Empty(t, i.got)
	m.Start()
	m.PostUserMessage("after it")
	assert.Equal(t, []any{&actor.Started{}, "before the handlers", "before the start", "after it"},
		i.got)
}
