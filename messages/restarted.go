package messages

// Restarted tells that an actor of an engine panicked and was restarted; what it
// held is rebuilt before the next request is served. Engines publish a pointer to
// one on the event stream of their actor system, before any request that failed
// over it is answered.
type Restarted struct {
	Engine string // the id of the engine's actor
	Actor  string // coordinator, tree, offloader, events, pool:NAME or join
	Cause  *Panic
	// Failures are those of the last while, this one included: one more than the
	// restart limit, and the engine has failed instead.
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
