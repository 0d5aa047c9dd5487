package evict

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Queue orders the pages of one tenant and one priority that may be evicted. A page that is
// added has contents, of which nothing changes until it is removed.
type Queue interface {
	Add(p int32)
	Remove(p int32)
	Len() int
	// First is the page that is evicted next; there is one. It may compare more pages with
	// each call, and then answer another one.
	First() int32
	// Before tells whether page a is evicted before page b, both the first ones of queues.
	Before(a, b int32) bool
	// Peek appends the first n pages in their order.
	Peek(n int, list []int32) []int32
	// Pages appends all pages, in any order.
	Pages(list []int32) []int32
	// Check joins all that is wrong.
	Check() error
}

// Policy makes queues, and is told what requests did. A policy that learns nothing embeds
// indifferent.
type Policy interface {
	NewQueue() Queue
	// NewCopies makes a queue for contents that are elsewhere too, which need no forecast.
	NewCopies() Queue
	// Advance tells the time.
	Advance(now time.Duration)
	// Release tells of pages that a request lets go, before they may be evicted: with facts
	// its whole path, block by block, at the end of the request.
	Release(pages []messages.PageID, facts *protocol.RequestFacts)
	// Await tells that a request which waits is going to use the contents of pages. The pages
	// of one work, between two calls of Advance, wait alike.
	Await(pages []messages.PageID)
	// Follow tells that the checkpoints in pages[1:] are the next longer ones behind that of
	// pages[0].
	Follow(pages []messages.PageID)
	// Used tells that contents are used now, in a memory that is not told of requests.
	Used(p int32)
	// Note tells what another Core knew of contents that it has evicted, nil if nothing; Noted
	// is what this one knows, if anything.
	Note(p int32, known *protocol.EvictedPiece)
	Noted(p int32) (known protocol.EvictedPiece, ok bool)
	// RankBy lends what ranks the contents that were noted; nil ends that.
	RankBy(protocol.Ranking)
	// Ranking is what another Core may rank by, nil if there is nothing.
	Ranking() protocol.Ranking
	// Forget tells that the contents of a page are gone, Move that they have another page.
	Forget(p int32)
	Move(from, to int32)
	Resize(pages int)
	// Check joins all that is wrong, Draw draws what is known of one page.
	Check() error
	Draw(p int32) string
}

// indifferent is a Policy, but for NewQueue and NewCopies, that learns nothing.
type indifferent struct{}

// Advance does nothing, as do the other methods.
func (indifferent) Advance(time.Duration)                              {}
func (indifferent) Release([]messages.PageID, *protocol.RequestFacts)  {}
func (indifferent) Await([]messages.PageID)                            {}
func (indifferent) Follow([]messages.PageID)                           {}
func (indifferent) Used(int32)                                         {}
func (indifferent) Note(int32, *protocol.EvictedPiece)                 {}
func (indifferent) Noted(int32) (known protocol.EvictedPiece, ok bool) { return known, false }
func (indifferent) RankBy(protocol.Ranking)                            {}
func (indifferent) Ranking() protocol.Ranking                          { return nil }
func (indifferent) Forget(int32)                                       {}
func (indifferent) Move(_, _ int32)                                    {}
func (indifferent) Resize(int)                                         {}
func (indifferent) Check() error                                       { return nil }
func (indifferent) Draw(int32) string                                  { return "" }

// Options say which policy a Core has, and what the policy needs to know.
type Options struct {
	Name string // of policies; "": LRU
	// Seed decides what the policy samples, Span is that of the signatures of requests.
	Seed uint64
	Span protocol.Span
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

// LRU and Forecast are the policies that most engines choose from. The others are there to
// compare with, see docs/policies.md.
const (
	LRU      = windows.PriorityLRU
	Forecast = windows.Forecast
)

// policies make a policy for so many pages.
var policies = map[string]func(c *Core, o Options, pages int) Policy{
	"":                    newLRU,
	LRU:                   newLRU,
	Forecast:              newForecast,
	windows.ARC:           newARC,
	windows.S3FIFO:        newS3FIFO,
	windows.WTinyLFU:      newTinyLFU,
	windows.GDSFDepth:     newGDSF,
	windows.SupersededLRU: newSuperseded,
}

func newPolicy(c *Core, o Options, pages int) Policy {
	open := policies[o.Name]
	if open == nil {
		panic(fmt.Sprintf("evict: there is no policy %q", o.Name))
	}
	return open(c, o, pages)
}
