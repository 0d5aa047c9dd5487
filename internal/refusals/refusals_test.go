package refusals

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

// What is no request is named as hosts know it.
func TestNoRequest(t *testing.T) {
	for want, message := range map[string]any{
		"nil is no request":                                  nil,
		"a nil Admit is no request":                          (*messages.Admit)(nil),
		"Admit is no request: requests are sent as pointers": messages.Admit{},
		"int is no request: requests are sent as pointers":   42,
		"Refusal is no request":                              &messages.Refusal{},
	} {
		r := NoRequest(message)
		assert.Equal(t, want, r.Error())
		assert.ErrorIs(t, r, messages.ErrBadRequest)
	}
}
