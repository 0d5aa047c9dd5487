package messages

// Restarted reports that an actor of an engine panicked and was restarted. Its state
// is rebuilt before the next request is served. An engine publishes a *Restarted on
// the event stream of its actor system, before it answers any request that the
// failure made it abort.
type Restarted struct {
	Engine string // the id of the engine's actor
	Actor  string // coordinator, tree, offloader, events, pool:NAME or join
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
