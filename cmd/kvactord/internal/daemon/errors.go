package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// Codes of refusals that are the daemon's own.
const (
	codeVersion     = "wire_version"
	codeHandle      = "unknown_handle"
	codeMemory      = "no_memory"
	codeDeadline    = "deadline"
	codeLimit       = "limit"
	codeFingerprint = "fingerprint"
)

// errorf makes an answer of a refusal.
func errorf(code, format string, args ...any) *wire.Error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// badf is the refusal of a mistake of the client.
func badf(format string, args ...any) *wire.Error {
	return errorf(string(kvactor.ErrBadRequest), format, args...)
}

// refusal is an error of the engine as an answer; nil for none.
func refusal(err error) *wire.Error {
	var r *kvactor.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return &wire.Error{Code: string(r.Code), Message: r.Message, Never: r.Never}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errorf(codeDeadline, "the request's time is over")
	}
	return errorf(string(kvactor.ErrInternal), "%v", err)
}
