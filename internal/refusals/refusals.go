// Package refusals makes the refusals that hosts receive.
package refusals

import (
	"fmt"
	"reflect"

	"github.com/kvactor/kvactor/messages"
)

// New returns a refusal with a formatted message.
func New(code messages.Code, format string, args ...any) *messages.Refusal {
	return &messages.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NoRequest returns the refusal of a message that an engine does not serve.
func NoRequest(message any) *messages.Refusal {
	t := reflect.TypeOf(message)
	if t == nil {
		return New(messages.ErrBadRequest, "nil is no request")
	}
	// The name alone: hosts know the messages by it, whatever package has them.
	if t.Kind() != reflect.Pointer {
		return New(messages.ErrBadRequest, "%s is no request: requests are sent as pointers", t.Name())
	}
	if reflect.ValueOf(message).IsNil() {
		return New(messages.ErrBadRequest, "a nil %s is no request", t.Elem().Name())
	}
	return New(messages.ErrBadRequest, "%s is no request", t.Elem().Name())
}

// OutOfPages returns the refusal of a request that needs more pages of a pool than
// are available.
func OutOfPages(pool string, need, available int) *messages.Refusal {
	r := New(messages.ErrOutOfPages, "pool %s needs %d pages, %d available", pool, need, available)
	r.Pool, r.Need, r.Available = pool, need, available
	return r
}
