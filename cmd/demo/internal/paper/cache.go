package paper

import (
	"maps"
	"slices"
)

// Request is the prompt of a request as a list of blocks.
type Request []int32

// Trace is a list of requests in the order of their arrival.
type Trace struct {
	TokensPerBlock int
	Requests       []Request
}

// Cache is a cache of a number of blocks. Each request is first looked up, then used.
type Cache interface {
	Has(block int32) bool
	// Use stores the blocks of request i of the trace, and evicts others. A policy that
	// admits not everything may leave out some of them.
	Use(i int, blocks []int32)
}

// The policies.
const (
	// Optimal knows the trace: it keeps the blocks whose next use is nearest. No policy
	// has more hits while requests are atomic.
	Optimal = "optimal"
	// S3FIFO is three queues: new blocks pass a small one, and only those that are used
	// again there, or soon after, reach the main one (Yang et al., SOSP 2023).
	S3FIFO = "s3_fifo"
	// Superseded is LRU, but what is left of a run that a prompt has left in its middle
	// goes first.
	Superseded = "superseded_lru"
	// ARC balances a list of blocks used once and one of blocks used more often by the
	// hits in the histories of both (Megiddo and Modha, FAST 2003).
	ARC = "arc"
	// WTinyLFU passes new blocks through a small window and admits to the rest those
	// that are used more often than the block they would replace (Einziger, Friedman and
	// Manes, ACM Transactions on Storage 2017).
	WTinyLFU = "w_tinylfu"
	// GDSFDepth weighs a block's uses by the time that computing it takes, which grows with
	// its depth in the prompt, and ages all others by the weight of each victim (Cherkasova,
	// HP Laboratories 1998).
	GDSFDepth = "gdsf_depth"
)

// policies makes the caches.
var policies = map[string]func(capacity int, trace Trace) Cache{
	Optimal:    newOptimal,
	S3FIFO:     newS3FIFO,
	Superseded: newSuperseded,
	ARC:        newARC,
	WTinyLFU:   newTinyLFU,
	GDSFDepth:  newGDSF,
}

// Known tells whether a policy is one of this package.
func Known(policy string) bool { return policies[policy] != nil }

// Names lists the policies in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(policies)) }

// New makes an empty cache for the requests of a trace. The policy must be known. All but
// Optimal look only at how many blocks there are and how long they are.
func New(policy string, capacity int, trace Trace) Cache { return policies[policy](capacity, trace) }

// blocks is one more than the highest number of a block.
func (t *Trace) blocks() int {
	highest := int32(-1)
	for _, r := range t.Requests {
		for _, b := range r {
			highest = max(highest, b)
		}
	}
	return int(highest) + 1
}
