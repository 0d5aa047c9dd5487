package messages

// Code is the kind of a refusal.
type Code string

// The codes. errors.Is compares a refusal with them: errors.Is(err, ErrOutOfPages).
const (
	ErrBadRequest Code = "bad_request" // a mistake of the host; the message names the field
	// a mistake in the configuration; the message names all fields
	ErrConfigInvalid   Code = "config_invalid"
	ErrUnknownSequence Code = "unknown_sequence" // not running, or released
	ErrOutOfPages      Code = "out_of_pages"     // of one pool
	ErrTooLong         Code = "too_long"         // longer than the model allows
	ErrUnknownPin      Code = "unknown_pin"      // ended, or never begun
	ErrNotSupported    Code = "not_supported"    // by this model or configuration
	ErrSequenceLost    Code = "sequence_lost"    // pages of the sequence are lost; release it
	ErrBusy            Code = "busy"             // too many requests in flight
	ErrClosed          Code = "closed"           // the engine is closed
	ErrFailed          Code = "failed"           // actors failed too often, or the device is lost
	ErrInternal        Code = "internal"         // an actor failed; the engine goes on
	// what a hand-over has read is damaged or ends too early, or its receiver has refused it
	ErrBadStream Code = "bad_stream"
)

// Error returns the code.
func (c Code) Error() string { return string(c) }

// Refusal is the error of a request that was refused. A refused request has changed
// nothing. errors.Is matches a Refusal with its code.
type Refusal struct {
	Code    Code
	Message string
	// Pool, Need and Available are set by OutOfPages alone: the first pool that
	// lacks pages, the number of pages that the request takes from it, and how many
	// were available.
	Pool            string
	Need, Available int
	// Total is the number of pages of the pool. Never is set if that is less than the
	// request needs, together with the pages that it holds or would reuse: then only a
	// Rebalance or a smaller request helps. With WithAutoRebalance it is compared with
	// the pages that the pool has when every other pool has one: then only a smaller
	// request helps. Without Never the request may be sent again when pages have been
	// released, or memory has moved.
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

// Is reports whether target is the refusal's code.
func (r *Refusal) Is(target error) bool { return target == error(r.Code) }

// Restarted reports that an actor of an engine panicked and was restarted. Its state
// is rebuilt before the next request is served. An engine publishes a *Restarted on
// the event stream of its actor system, before it answers any request that the
// failure made it abort.
type Restarted struct {
	Engine string // the id of the engine's actor
	Actor  string // coordinator, tree, offloader, events, store or pool:NAME
	Cause  *Panic
	// Failures counts the failures in the window of the restart limit, including
	// this one. When it exceeds the limit the engine fails and restarts nothing.
	Failures int
}

// Panic is a panic of an actor of the engine.
type Panic struct {
	Actor  string
	Reason string // what panic was called with, formatted
	Stack  string // of the goroutine that panicked
}

// Error names the actor and the reason; the stack is too long for an error.
func (p *Panic) Error() string { return p.Actor + " panicked: " + p.Reason }
