package actors

import (
	"reflect"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// library tells messages of the actor library: an actor is told when it starts,
// again after a failure, and when it stops.
func library(message any) bool {
	switch message.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated, *actor.PoisonPill:
		return true
	}
	return false
}

// empty is the refusal of a request that points at nothing, else nil.
func empty(request any) error {
	if v := reflect.ValueOf(request); request == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return refusals.New(messages.ErrBadRequest, "a nil %T is no request", request)
	}
	return nil
}

// fromActor gives the request that a host's actor has sent; nil for messages of
// the library, which need no answer. What is no request is sent back.
func fromActor(ctx actor.Context) any {
	m := ctx.Message()
	_, request := m.(messages.Request)
	var refusal error
	switch {
	case !request && (ctx.Sender() == nil || library(m)):
		return nil
	case !request:
		refusal = refusals.New(messages.ErrBadRequest, "%T is no request", m)
	default:
		refusal = empty(m)
	}
	if refusal == nil {
		return m
	}
	if sender := ctx.Sender(); sender != nil {
		ctx.Send(sender, &messages.Aborted{Request: m, Err: refusal})
	}
	return nil
}
