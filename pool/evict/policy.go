package evict

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Policy makes queues, and is told what happens to contents. Its calls come one after another. Of
// the Core it calls what changes nothing: Page, Holds, Waits, Filling and Before.
type Policy interface {
	NewQueue() Queue
	// Used tells that a request uses the contents of pages, in the order of their blocks, before
	// they may be evicted. At the end of a request r says what it was, and pages are its whole
	// path, with NoPage where it holds none. Without r they are those that leave a window, or
	// one of a memory that is not told of requests. Pages of which no use is told come to a
	// queue, too, as after a failure.
	Used(pages []messages.PageID, r *Request)
	// Forget tells that the contents of a page are gone, Move that they have another page, which
	// has had none. The page is in no queue then.
	Forget(p int32)
	Move(from, to int32)
	// Resize tells the number of pages, before all else and when it changes. Those that go have
	// no contents.
	Resize(pages int)
}

// Queue orders evictable pages of one tenant and one priority: those that a match can use, or those
// that none can.
type Queue interface {
	// Add adds a page with contents, of which the Core changes nothing until Remove.
	Add(p int32)
	Remove(p int32)
	// First is the page that is evicted next; there is one. It may compare more pages with
	// each call, and then answer another one.
	First() int32
	// Before tells whether page a is evicted before page b, both the first ones of queues.
	Before(a, b int32) bool
	// Peek appends the n pages that are evicted next, or all if there are fewer. The order may
	// be a guess: it says what is copied to host memory ahead of its eviction.
	Peek(n int, list []int32) []int32
}

// Tiered is a Policy that takes along to host memory what it knew of contents on the device.
type Tiered interface {
	// Noted is what is known of contents that are evicted, if anything.
	Noted(p int32) (known Known, ok bool)
	// Note tells of contents that have come to host memory what was Noted, nil if nothing. It
	// stands for their first use.
	Note(p int32, known *Known)
}

// Inspected is a Policy that can be looked at, for tests and scripts.
type Inspected interface {
	// Check joins all that is wrong.
	Check() error
	// Draw draws what is known of a page: nothing, or a space and some words.
	Draw(p int32) string
}

// Checked is a Queue that joins all that is wrong with it, if it should have so many pages.
type Checked interface{ Check(pages int) error }

type (
	// Request is what a Policy is told of a request that has ended.
	Request = protocol.RequestFacts
	// Span says which prefixes of a request have a signature.
	Span = protocol.Span
	// Known is what a Policy has noted. Identity is for any, the rest for forecast.
	Known = protocol.EvictedPiece
)

// Options say which policy a Core has, and what the policy needs to know.
type Options struct {
	Name string // of windows.EvictionPolicies; "": LRU
	// Seed decides what the policy samples, Span is that of the signatures of requests.
	Seed uint64
	Span Span
	// States: the pages are checkpoints of recurrent states and working pages.
	States bool
	// Noted: the Core is not told of requests, but what another one knew of its contents.
	Noted bool
	// DoublesAt is the depth in blocks at which computing a block takes twice as long as the
	// first one, see windows.Config.PrefillDoublesAt; 0: all blocks take the same work.
	DoublesAt float64
	// BlockTokens is how many tokens a block has; 0: not known.
	BlockTokens int
}

// LRU and Forecast are the policies that every engine has.
const (
	LRU      = windows.PriorityLRU
	Forecast = windows.Forecast
)

// policies make a Policy for a Core.
var policies = map[string]func(*Core, Options) Policy{
	"": newLRU, LRU: newLRU, Forecast: newForecast,
}

// Register makes a policy one that configurations may name. It panics if there is one of this
// name. Like database/sql.Register it is called from an init function, before engines open.
//
// An engine calls open for each pool, once for the device and once for host memory, from several
// goroutines, and again after a failure. The policies that it makes share nothing that changes.
func Register(name string, open func(*Core, Options) Policy) {
	if policies[name] != nil {
		panic(fmt.Sprintf("evict: there are two policies %q", name))
	}
	policies[name] = open
	windows.AddEvictionPolicy(name)
}

func newPolicy(c *Core, o Options) Policy {
	open := policies[o.Name]
	if open == nil {
		panic(fmt.Sprintf("evict: there is no policy %q", o.Name))
	}
	return open(c, o)
}
