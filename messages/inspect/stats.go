package inspect

import (
	"errors"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// ReadStats reads counters, which count from the start of the engine, and page counts.
type ReadStats struct {
	messages.Request // nil: it makes the record a request

	Stats Stats
	Err   error
	Tag   any
}

// Stats has the counters of the engine and its pools.
type Stats struct {
	// Requests are the admissions that were served, without those that the host marks as
	// AdmitRequest.Readmitted. Those are Readmissions, and count nowhere else: not in the tokens
	// and Prompts, and not in ReusedFull, ReusedPartial and Missed of the pools.
	Requests     int64
	Readmissions int64
	PromptTokens int64
	ReusedTokens int64
	// ThrashTokens are those of PromptTokens that were not reused although the cache had them a
	// short while ago: they were evicted, and were wanted again before two to three times the
	// tokens that the largest pool holds in both tiers had come into the cache. What resets,
	// epochs of the weights, failures and invalidations by adapter have forgotten was not
	// evicted.
	//
	// Prefixes are remembered by signatures at the ends of blocks 1, 2, 4 and so on, then at
	// every 256 tokens, so the number is up to that much too small for each prompt. Where a model
	// has recurrent states, at the ends of checkpoints instead: what had none does not count. Nor
	// do prompts with multimodal items.
	ThrashTokens int64
	Pools        []PoolStats
	Prompts      PromptStats
	// AppendedTokens were appended and not rewound, of each beam. Those of a fork's origin
	// count once, those of another engine there.
	AppendedTokens int64
	// AppendedPages are device pages that appends have taken, of all pools.
	AppendedPages int64
	// Weights is the epoch of the weights, and Forgets what hosts have had the engine forget.
	Weights string
	Forgets ForgetStats
	// RefusedSteps are those of appends and commits that were served otherwise.
	RefusedSteps StepRefusals
	Sequences    int // running now
	// LostSequences are those of Sequences that a failure has lost: every call about one is
	// refused until it is released.
	LostSequences int
	Waiting       int // requests that wait for pages now: actors.WithWaitingRoom
	Rounds        int64
	Restarts      int64 // of actors that failed
	// Calls, Memory and Store are what is known outside of the engine's actors: they are empty in
	// the answer of a ReadStats. Store is what the engine and its store have exchanged; nil without
	// a store.
	Calls  CallStats
	Memory MemoryStats
	Store  *StoreStats
}

// MemoryStats is the memory that an engine has taken, on all ranks together. A hand-over, a
// fetch and what a store encodes take memory of the process besides, as long as they last.
type MemoryStats struct {
	Ranks       int   // devices that the engine's device stands for
	DeviceBytes int64 // device pages
	// What host pages are for. Where the engine has divided windows.Config.HostCacheSize, the three
	// together are that on each rank, rounded down to pages.
	ContentBytes  int64 // contents that the device has evicted
	AheadBytes    int64 // copies that are made before a page is evicted
	SaveBytes     int64 // bytes on their way to a store
	MetadataBytes int64 // about what the records of the pages at the start and of their blocks take
}

// HostBytes is the memory of all host pages.
func (m *MemoryStats) HostBytes() int64 { return m.ContentBytes + m.AheadBytes + m.SaveBytes }

// ForgetStats counts what hosts have had the engine forget, when the tree has forgotten it.
type ForgetStats struct {
	Resets            int64 // that left what running sequences hold
	RunningResets     int64 // messages.Reset.Running
	Weights           int64 // new epochs of the weights
	Scales            int64 // other scales of 8-bit elements
	Invalidations     int64 // also those that found nothing
	InvalidatedBlocks int64
}

// StepRefusals counts refused steps by their code.
type StepRefusals struct{ OutOfPages, SequenceLost, Other int64 }

// Note counts a refusal.
func (r *StepRefusals) Note(err error) {
	switch {
	case errors.Is(err, messages.ErrOutOfPages):
		r.OutOfPages++
	case errors.Is(err, messages.ErrSequenceLost):
		r.SequenceLost++
	default:
		r.Other++
	}
}

// CallStats counts the calls that wait, and the copies that went wrong.
type CallStats struct {
	InFlight int // accepted and not yet answered, without the one that asks
	Blocked  int // wait to be accepted, since actors.WithMaxInFlight are in flight
	// RefusedCopies are copies that the device refused; one of several pages is tried again
	// page by page, and counts.
	RefusedCopies int64
}

// PoolStats has the page counts and counters of one pool.
type PoolStats struct {
	Name               string
	Primary, Secondary TierPages
	PoolCounters
}

// TierPages counts the pages of one tier. Used, Cached and Free add up to Total.
type TierPages struct{ Total, Used, Cached, Free int }

// PoolCounters counts what has happened in one pool since the engine started.
type PoolCounters struct {
	AllocatedPages int64 // device pages taken for any purpose
	ReusedFull     int64 // pages reused whole
	ReusedPartial  int64 // admissions that reused a block in part
	Missed         int64 // prompt blocks from the first that was not reused on
	Evicted        int64 // device pages whose contents were evicted
	Offloaded      int64 // of these, contents that host memory kept
	Dropped        int64 // contents that eviction dropped, from either tier
	Onboarded      int64 // pages copied to the device
	BytesOffloaded int64 // copied, whole pages
	BytesOnboarded int64
	// BytesSaved were not copied to host memory at an eviction, because an onboard
	// had left them there; whole pages.
	BytesSaved int64
	// DirtyTakes are the offloads of contents of which no onboard had left a copy
	// in host memory; WaitingTakes those of them whose copy, made then or ahead,
	// was not over, so that who took the page had to wait for it. AheadPages are
	// the copies that were made before anyone asked, of use or not.
	DirtyTakes   int64
	WaitingTakes int64
	AheadPages   int64
	// Checkpoints counts the checkpoints made in a state pool, those included that
	// a release hands over; CheckpointsSkipped counts those for which no page was
	// found.
	Checkpoints        int64
	CheckpointsSkipped int64
}

// StoreStats counts what an engine and its store have exchanged.
type StoreStats struct {
	SavedObjects, SavedBytes     int64
	FetchedObjects, FetchedBytes int64         // what was asked for, there and right: the hits
	Misses                       int64         // pages that were asked for and were not there
	Rejected                     int64         // bodies that were not what was asked for
	Replaced                     int64         // unusable objects that were saved anew
	Dropped                      int64         // pages that were not saved, see below
	Calls, Errors                int64         // Errors are the calls that failed
	CallTime                     time.Duration // all calls together
	// the store is not asked, because it has failed too often
	BreakerOpen   bool
	BreakerOpened int64 // how often that has begun
	// Dropped counts pages for which there was no room, that the store did not take, and, if
	// what host memory displaces is saved, that left memory by another way: from the device,
	// forgotten by the host, or lost in a failure. While there is no room it also counts pages of
	// blocks that are stored in part.
	//
	// Latency counts calls by the time that they took: Latency[i] are those of at most
	// StoreLatencyBounds()[i] and longer than the bound before, the last those beyond.
	Latency [StoreLatencies]int64
}

// StoreLatencies is the number of counts of StoreStats.Latency.
const StoreLatencies = 13

// StoreLatencyBounds are the bounds of StoreStats.Latency: from 100 µs, which a store on
// the same machine needs, to 10 s, twice the time that a call has by default.
func StoreLatencyBounds() [StoreLatencies - 1]time.Duration {
	return [StoreLatencies - 1]time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
	}
}

// Stage is a part of the service of a call by an engine.
type Stage string

// The stages. A call goes through those that it needs, some of them more than once: an
// admission whose copies fail is matched again.
const (
	StageQueue Stage = "queue" // calls before it are served
	StageMatch Stage = "match" // the tree finds the prefixes, pools claim and pin their pages
	StageWait  Stage = "wait"  // an admission waits for pages: actors.WithWaitingRoom
	// pools take and drop pages, and name what they evict; with the claims if enough pages are there
	StageTake  Stage = "take"
	StageMove  Stage = "move"  // copies are submitted to the streams
	StageApply Stage = "apply" // the tree learns what has changed, pools and host memory follow
)

// StageMark is the beginning of a stage. It lasts to the next one, or to the answer.
type StageMark struct {
	Stage Stage
	Began time.Time
}

// PageTime is a time in the history of a sampled device page, by the engine's clock.
type PageTime struct {
	Pool     messages.PoolID
	Kind     PageTimeKind
	Duration time.Duration
}

// PageTimeKind says what a PageTime measures.
type PageTimeKind uint8

// The kinds of times.
const (
	PageLifetime  PageTimeKind = iota // from the store of a block to its eviction
	PageIdle                          // from the last use of a block to its eviction
	PageReuseGap                      // from one use of a block to the next admission that reuses it
	PageTimeKinds                     // how many kinds there are
)

// Check verifies the invariants of all actors. Err joins everything that is wrong. It
// walks all that the engine holds, so it is for tests.
type Check struct {
	messages.Request // nil: it makes the record a request

	Err error
	Tag any
}
