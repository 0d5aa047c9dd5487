package messages

import "fmt"

// Token is one token id, 0 … 2³¹−1. Inside the engine a negative value is a
// symbol: it stands for a token that a multimodal item covers, so that prompts
// with items are compared like any others (see package tree).
type Token int32

// MaxToken is the largest token id that a host may pass.
const MaxToken Token = 1<<31 - 1

// PageID numbers the pages of one pool in one tier from 0.
type PageID int32

// NoPage marks a block without a page: its window has passed, or it has none yet.
const NoPage PageID = -1

// PoolID is the index of a pool in the engine's list of pools: ascending
// window, full attention last, then ascending KV heads.
type PoolID int32

// SequenceID is the engine's handle of a running sequence: a slot in the low
// 32 bits, the slot's generation in the high ones, so an old handle is
// recognised. The zero value is never a running sequence.
type SequenceID uint64

// String gives slot and generation.
func (s SequenceID) String() string { return fmt.Sprintf("%d.%d", uint32(s), uint32(s>>32)) }

// PinID is the engine's handle of a pin.
type PinID uint64

// Priority orders eviction: 0 goes first, 100 last.
type Priority uint8

// The bounds of a priority, and what a block has that no retention covers.
const (
	MinPriority     Priority = 0
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

// Location is where one pool keeps one block: nowhere, on a device page, or
// only in host memory. It packs tier and page into 32 bits so that a run of
// blocks on device pages compares equal to the page table that made it.
type Location int32

// Nowhere is the location of a block that the pool does not hold.
const Nowhere = Location(NoPage)

// OnDevice is the location of device page p.
func OnDevice(p PageID) Location { return Location(p) }

// OnHost is the location of host page p.
func OnHost(p PageID) Location { return Location(-2 - p) }

// Page gives the page and its tier; ok is false for Nowhere.
func (l Location) Page() (p PageID, t Tier, ok bool) {
	switch {
	case l >= 0:
		return PageID(l), Primary, true
	case l == Nowhere:
		return NoPage, Primary, false
	default:
		return PageID(-2 - l), Secondary, true
	}
}

// StreamID names a stream of the device; 0 is none.
type StreamID uint32

// Ticket is a point on a stream: everything submitted to the stream up to
// number Seq. The zero Ticket is a point in the past, nothing waits for it.
type Ticket struct {
	Stream StreamID
	Seq    uint64
}

// IsZero tells whether there is nothing to wait for.
func (t Ticket) IsZero() bool { return t.Stream == 0 }

// Namespace separates what may never match: blocks are the same only within
// one namespace. It is comparable.
type Namespace struct {
	Salt    string // empty: none
	LoRA    string // the adapter; refused without HasLoRA
	HasLoRA bool   // tells an adapter with an empty name from no adapter
	// Encoder is the encoder input that the KV depends on, in a form of the
	// engine's own: hosts leave it empty and pass the tokens with a request.
	Encoder string
}

// MultimodalItem is content that stands in for a run of prompt tokens.
type MultimodalItem struct {
	Hash   [32]byte // of the content
	Start  int      // first token it covers
	Length int      // tokens it covers, ≥ 1
}
