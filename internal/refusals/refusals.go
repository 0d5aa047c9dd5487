// Package refusals makes the refusals that hosts receive.
package refusals

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// New returns a refusal with a formatted message.
func New(code messages.Code, format string, args ...any) *messages.Refusal {
	return &messages.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// OutOfPages returns the refusal of a request that needs more pages of a pool than
// are available.
func OutOfPages(pool string, need, available int) *messages.Refusal {
	r := New(messages.ErrOutOfPages, "pool %s needs %d pages, %d available", pool, need, available)
	r.Pool, r.Need, r.Available = pool, need, available
	return r
}
