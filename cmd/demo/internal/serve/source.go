package serve

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// Request is a prompt to be answered. The server owns it from Next to Done.
type Request struct {
	Number  int // the source's own
	Session string
	// Tokens is the prompt; the server appends the answer.
	Tokens []messages.Token
	Prompt int // tokens of the prompt
	// Known is the number of leading prompt tokens that another prompt could
	// share. The server looks them up; 0 looks nothing up.
	Known  int
	Answer int // tokens to generate
	// Sample gives the token at an index of the answer.
	Sample  func(index int) messages.Token
	Arrival time.Duration

	Outcome Outcome
}

// Outcome is what became of a request.
type Outcome struct {
	// Stored is how many of the Known tokens were found stored when the request
	// was admitted, in any tier.
	Stored int
	// StoredOnHost are those of them that were in host memory only.
	StoredOnHost int
	Reused       int // prompt tokens that were not computed, at the first admission
	GivenUp      bool
	First        time.Duration // when the first token of the answer was there
	Done         time.Duration
}

// Source gives requests to one server.
type Source interface {
	// Next gives the next request that has arrived, nil if none has by now. With
	// idle, the server has nothing else to do: the source may give a request
	// that is due later, and nil then ends the server.
	Next(now time.Duration, load Load) (*Request, error)
	// Done gives a request back.
	Done(*Request) error
}

// Load tells a source how a server is doing.
type Load int

// The loads.
const (
	Working Load = iota // there are requests to go on with
	Idle                // there are none
)
