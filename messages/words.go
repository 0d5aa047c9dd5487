package messages

import (
	"fmt"
	"time"
)

// Token is a token id from 0 to MaxToken. Hosts never see negative values, which the
// engine uses for tokens that a multimodal item covers.
type Token int32

// MaxToken is the largest token id that a host may pass.
const MaxToken Token = 1<<31 - 1

// PageID is the number of a page, from 0, in one tier of one pool.
type PageID int32

// NoPage marks a block without a page: the window has passed it, or it has no page
// yet.
const NoPage PageID = -1

// PoolID is the index of a pool in the engine's list of pools. Pools are in order of
// their window, full attention last, and then of their number of KV heads.
type PoolID int32

// SequenceID is the engine's handle of a running sequence. The low 32 bits are a slot,
// the high 32 bits count the sequences that have had it, so that a handle of an
// earlier one is refused. The zero value is never a running sequence.
type SequenceID uint64

// String returns the slot and the count.
func (s SequenceID) String() string { return fmt.Sprintf("%d.%d", uint32(s), uint32(s>>32)) }

// PinID is the engine's handle of a pin.
type PinID uint64

// Priority orders eviction: blocks of priority 0 are evicted first, of 100 last.
type Priority uint8

// The priority of blocks that no Retention covers, and the largest. The least is 0.
const (
	DefaultPriority Priority = 35
	MaxPriority     Priority = 100
)

// Tier is device or host memory.
type Tier uint8

// The tiers.
const (
	Primary   Tier = iota // device memory
	Secondary             // host memory
)

// String names the tier as events do.
func (t Tier) String() string {
	if t == Primary {
		return "primary"
	}
	return "secondary"
}

// MarshalText names the tier as String does.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Tier) UnmarshalText(text []byte) error {
	switch string(text) {
	case "primary":
		*t = Primary
	case "secondary":
		*t = Secondary
	default:
		return &Refusal{Code: ErrBadRequest, Message: fmt.Sprintf("tier %q is not primary or secondary",
			text)}
	}
	return nil
}

// StreamID identifies a stream of the device; 0 is none.
type StreamID uint32

// Ticket is a point on a stream. It has passed when everything that was submitted to
// the stream up to number Seq is complete. The zero Ticket has always passed.
type Ticket struct {
	Stream StreamID
	Seq    uint64
}

// IsZero reports whether t is the zero Ticket.
func (t Ticket) IsZero() bool { return t.Stream == 0 }

// Namespace separates prompts that must not share blocks: blocks match only within one
// namespace. Namespaces are comparable.
type Namespace struct {
	Salt    string // empty: none
	LoRA    string // name of the adapter; refused without HasLoRA
	HasLoRA bool   // there is an adapter, even if its name is empty
	// Encoder is the engine's key of the encoder input that the KV depends on. Hosts
	// leave it empty and pass the encoder's tokens with a request.
	Encoder string
	// Weights is the epoch of the weights that the KV depends on, and behind it a hash of the
	// scales where one is not 1. The engine sets it to its own, whatever a host passes.
	Weights string
}

// MultimodalItem is content, such as an image, that replaces consecutive tokens of a
// prompt.
type MultimodalItem struct {
	Hash   [32]byte // hash of the content
	Start  int      // index of the first token that it covers
	Length int      // number of tokens that it covers, at least 1
}

// Cover says which multimodal item covers a token. The zero Cover is none.
type Cover struct {
	Covered  bool
	Hash     [32]byte
	Position int // of the token in the item
}

// Retention sets the eviction priorities of the blocks of a request, and how long
// these hold. With the zero value new blocks get DefaultPriority, and blocks that
// are stored already keep the priority that they have.
type Retention struct {
	// Ranges are disjoint half-open token ranges of the prompt, in any order.
	Ranges []RetentionRange
	// Decode applies to blocks whose first token is generated; nil leaves them at
	// the default.
	Decode *DecodeRetention
}

// RetentionRange sets the priority of the blocks whose first token is in
// [Start, End).
type RetentionRange struct {
	Start int
	End   int // EndOfPrompt stands for the length of the prompt
	Priority
	Duration time.Duration // 0: never expires; else at least a millisecond
}

// EndOfPrompt stands for the length of the prompt, as the End of a range.
const EndOfPrompt = -1

// DecodeRetention sets the priority of blocks whose first token is generated.
type DecodeRetention struct {
	Priority
	Duration time.Duration // 0: never expires
}

// IsZero reports whether the retention sets nothing.
func (r *Retention) IsZero() bool { return r == nil || len(r.Ranges) == 0 && r.Decode == nil }
