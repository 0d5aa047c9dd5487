package messages

import "fmt"

// Code is the kind of a refusal. Its values are those of the script protocol.
type Code string

// The codes.
const (
	BadRequest        Code = "bad_request"
	NotOpen           Code = "not_open"
	AlreadyOpen       Code = "already_open"
	ConfigInvalid     Code = "config_invalid"
	UnknownSequence   Code = "unknown_sequence"
	DuplicateSequence Code = "duplicate_sequence"
	OutOfPages        Code = "out_of_pages"
	TooLong           Code = "too_long"
	UnknownPin        Code = "unknown_pin"
	NotSupported      Code = "not_supported"
	SequenceLost      Code = "sequence_lost"
	Busy              Code = "busy"
	Closed            Code = "closed"
	Failed            Code = "failed"
	Internal          Code = "internal"
)

// Refusal is the error of a request that was refused. A refused request has changed
// nothing. errors.Is matches a Refusal with the Err… value of its code.
type Refusal struct {
	Code    Code
	Message string
	// Pool, Need and Available are set by OutOfPages alone: the first pool that
	// lacks pages, the number of pages that the request takes from it, and how many
	// were available.
	Pool            string
	Need, Available int
	// Total is the number of pages of the pool. Never is set if that is less than
	// the request needs, together with the pages that it would reuse: then waiting
	// for other sequences does not help, only a Rebalance or a smaller request.
	// Without Never the request may be sent again when pages have been released.
	Total int
	Never bool
	// Cause is what made the engine give a request up, or nil. errors.As finds a
	// *Panic in it when an actor has panicked.
	Cause error
}

// Unwrap returns Cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Is reports whether target is a Refusal of the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// Refuse returns a refusal with a formatted message.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// RefusePages returns the refusal of a request that needs more pages of a pool than
// are available.
func RefusePages(pool string, need, available int) *Refusal {
	r := Refuse(OutOfPages, "pool %s needs %d pages, %d available", pool, need, available)
	r.Pool, r.Need, r.Available = pool, need, available
	return r
}

// WithTotal sets Total, and Never by comparing it with the pages that the request
// needs in all. It returns r.
func (r *Refusal) WithTotal(total, needed int) *Refusal {
	r.Total, r.Never = total, needed > total
	return r
}

// The values that errors.Is matches, one for each code.
var (
	ErrBadRequest      = &Refusal{Code: BadRequest, Message: "bad request"}
	ErrConfigInvalid   = &Refusal{Code: ConfigInvalid, Message: "invalid configuration"}
	ErrUnknownSequence = &Refusal{Code: UnknownSequence, Message: "unknown sequence"}
	ErrOutOfPages      = &Refusal{Code: OutOfPages, Message: "out of pages"}
	ErrTooLong         = &Refusal{Code: TooLong, Message: "sequence too long"}
	ErrUnknownPin      = &Refusal{Code: UnknownPin, Message: "unknown pin"}
	ErrNotSupported    = &Refusal{Code: NotSupported, Message: "not supported"}
	ErrSequenceLost    = &Refusal{Code: SequenceLost, Message: "sequence lost"}
	ErrBusy            = &Refusal{Code: Busy, Message: "too many requests in flight"}
	ErrClosed          = &Refusal{Code: Closed, Message: "the engine is closed"}
	ErrFailed          = &Refusal{Code: Failed, Message: "the engine has failed"}
	ErrInternal        = &Refusal{Code: Internal, Message: "internal error"}
)
