package kvactor

import (
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// What hosts send and receive are records of package messages. docs/api.md has the fields of all
// of them.

type (
	// Token is a token id from 0 to 2³¹−1.
	Token = messages.Token
	// PageID is the number of a page, from 0, in one tier of one pool.
	PageID = messages.PageID
	// PoolID is the index of a pool in the engine's list of pools.
	PoolID = messages.PoolID
	// SequenceID is the engine's handle of a running sequence.
	SequenceID = messages.SequenceID
	// PinID is the engine's handle of a pin.
	PinID = messages.PinID
	// ReaderID names a reader of events.
	ReaderID = kvevents.ReaderID
	// Priority orders eviction: blocks of priority 0 are evicted first, of 100 last.
	Priority = messages.Priority
	// Tier is device or host memory.
	Tier = messages.Tier
	// StreamID identifies a stream of the device.
	StreamID = messages.StreamID
	// Ticket is a point on a stream.
	Ticket = messages.Ticket
	// Namespace separates prompts that must not share blocks.
	Namespace = messages.Namespace
	// MissingPage is a page that the host has to write: that of a block in a pool, or the working
	// page of a state pool, as block 0.
	MissingPage = actors.MissingPage
	// MultimodalItem is content, such as an image, that replaces consecutive tokens of a prompt.
	MultimodalItem = messages.MultimodalItem
	// Retention sets the eviction priorities of the blocks of a request, and how long these hold.
	Retention = messages.Retention
	// RetentionRange sets the priority of the blocks whose first token is in [Start, End).
	RetentionRange = messages.RetentionRange
	// DecodeRetention sets the priority of blocks whose first token is generated.
	DecodeRetention = messages.DecodeRetention
	// AdmitRequest starts one sequence.
	AdmitRequest = messages.AdmitRequest
	// Admitted answers an AdmitRequest.
	Admitted = messages.Admitted
	// CrossAdmitted is what an admission got in the cross pool of an encoder–decoder model.
	CrossAdmitted = messages.CrossAdmitted
	// PoolReuse counts what an admission reused in one pool.
	PoolReuse = messages.PoolReuse
	// MissReason says why an admission did not reuse more of its prompt.
	MissReason = messages.MissReason
	// PartialReuse says how a block that matched in part was reused.
	PartialReuse = messages.PartialReuse
	// BeamStep makes one beam.
	BeamStep = messages.BeamStep
	// PlacedPage is a page that a step has put into the page table of a beam.
	PlacedPage = messages.PlacedPage
	// Tables are page tables, as [pool][beam][block]. Blocks that the window has passed have
	// NoPage.
	Tables = messages.Tables
	// Prefix is the beginning of a prompt, for requests about stored blocks.
	Prefix = messages.Prefix
	// Selector selects blocks to forget.
	Selector = messages.Selector
	// Found answers a lookup.
	Found = messages.Found
	// Pinned answers a pin.
	Pinned = messages.Pinned
	// Rebalanced answers a rebalance.
	Rebalanced = messages.Rebalanced
	// Stats has the counters of the engine and its pools.
	Stats = inspect.Stats
	// PoolStats has the page counts and counters of one pool.
	PoolStats = inspect.PoolStats
	// PoolCounters counts what has happened in one pool since the engine started.
	PoolCounters = inspect.PoolCounters
	// PageMove is a page whose number a rebalance has changed.
	PageMove = messages.PageMove
	// LayerScale has the divisors of one layer's keys and values.
	LayerScale = messages.LayerScale
	// Event is one change of what the cache holds.
	Event = kvevents.Event
	// EventType is the kind of an event.
	EventType = kvevents.EventType
	// StoredBlock is a block in a stored event.
	StoredBlock = kvevents.StoredBlock
	// Hash identifies a block in events.
	Hash = kvevents.Hash
	// EventBatch is the answer to one read of events.
	EventBatch = kvevents.EventBatch
	// Refusal is the error of a request that was refused.
	Refusal = messages.Refusal
	// Code is the kind of a refusal.
	Code = messages.Code
	// Panic is a panic of an actor of the engine: the Cause of a Refusal.
	Panic = messages.Panic
)

// Configurations are those of package windows, which says more.

type (
	// Model is what the cache must know of a model.
	Model = windows.Model
	// CacheConfig is the cache configuration.
	CacheConfig = windows.Config
	// PageCounts are the numbers of pages of one pool: in device memory and in host memory.
	PageCounts = windows.PageCounts
	// Pool is a set of layers whose contents lie in the same pages.
	Pool = windows.Pool
	// View locates a part of one layer within a page; Engine.View and Pool.View return it.
	View = windows.View
	// Part is a part of a layer in a page, for Engine.View and Pool.View.
	Part = windows.Part
	// DType is a type of elements.
	DType = windows.DType
	// Kind is what the pages of a pool hold.
	Kind = windows.Kind
	// Shape is the shape of the keys and values of one layer.
	Shape = windows.Shape
	// Layout is the order of heads and tokens in a page.
	Layout = windows.Layout
	// State is a group of recurrent layers with states of one size.
	State = windows.State
	// PoolMemory is memory of the host application that the pages of one pool lie in, or
	// asks for memory that other processes can map.
	PoolMemory = actors.PoolMemory
	// Tensor is device memory of the host application that holds a piece of each page.
	Tensor = gpu.Tensor
)

// NoPage marks a block without a page, in tables and in Inputs.
const NoPage = messages.NoPage

// EndOfPrompt stands for the length of the prompt, as the End of a RetentionRange.
const EndOfPrompt = messages.EndOfPrompt

// The priority of blocks that no Retention covers, and the largest. The least is 0.
const (
	DefaultPriority = messages.DefaultPriority
	MaxPriority     = messages.MaxPriority
)

// The tiers.
const (
	Primary   = messages.Primary   // device memory
	Secondary = messages.Secondary // host memory
)

// The values of MissReason.
const (
	ReasonDisabled   = messages.ReasonDisabled   // reuse is off
	ReasonHit        = messages.ReasonHit        // everything that was stored was reused
	ReasonCold       = messages.ReasonCold       // nothing of the prompt was stored
	ReasonEvicted    = messages.ReasonEvicted    // a pool of full attention lacked a block
	ReasonWindowHole = messages.ReasonWindowHole // a pool with a window lacked a block
	ReasonNoState    = messages.ReasonNoState    // a state pool lacks a checkpoint
)

// The ways of partial reuse.
const (
	PartialNone = messages.PartialNone // there was none
	PartialCopy = messages.PartialCopy // its tokens were copied to a page of the sequence
	// the sequence got its page, and the block was forgotten
	PartialTakeover = messages.PartialTakeover
)

// The types of events.
const (
	EventCreated = kvevents.EventCreated
	EventStored  = kvevents.EventStored
	EventRemoved = kvevents.EventRemoved
	EventUpdated = kvevents.EventUpdated
	EventCleared = kvevents.EventCleared
)

// The types of elements.
const (
	Float16  = windows.Float16
	BFloat16 = windows.BFloat16
	Float32  = windows.Float32
	FP8      = windows.FP8
	Int8     = windows.Int8
	NVFP4    = windows.NVFP4
)

// The layouts of pages.
const (
	HND = windows.HND // [head][token][element]
	NHD = windows.NHD // [token][head][element]
)

// The parts of a layer in a page. Latent vectors are Keys.
const (
	Keys           = windows.Keys
	Values         = windows.Values
	KeyScales      = windows.KeyScales      // of nvfp4
	ValueScales    = windows.ValueScales    // of nvfp4
	Side           = windows.Side           // Model.SideBytes of each token
	RecurrentState = windows.RecurrentState // State.Bytes of a sequence
)

// The kinds of pools.
const (
	KindAttention = windows.KindAttention // keys and values of a block of tokens
	KindState     = windows.KindState     // recurrent states after the last token of a block
	KindCross     = windows.KindCross     // keys and values of a block of encoder tokens
)

// The eviction policies, which order pages within a priority.
const (
	PriorityLRU = windows.PriorityLRU // evict the least recently used first
	Forecast    = windows.Forecast    // evict what is predicted to be worth least to keep
)

// The codes of refusals, for errors.Is.
const (
	ErrBadRequest      = messages.ErrBadRequest
	ErrConfigInvalid   = messages.ErrConfigInvalid
	ErrUnknownSequence = messages.ErrUnknownSequence
	ErrOutOfPages      = messages.ErrOutOfPages
	ErrTooLong         = messages.ErrTooLong
	ErrUnknownPin      = messages.ErrUnknownPin
	ErrNotSupported    = messages.ErrNotSupported
	ErrSequenceLost    = messages.ErrSequenceLost
	ErrBusy            = messages.ErrBusy
	ErrClosed          = messages.ErrClosed
	ErrFailed          = messages.ErrFailed
	ErrInternal        = messages.ErrInternal
	ErrBadStream       = messages.ErrBadStream
)

// DefaultCache returns the default configuration of a cache.
func DefaultCache() CacheConfig { return windows.DefaultConfig() }
