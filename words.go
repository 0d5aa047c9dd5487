package kvactor

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// What hosts send and receive is the same as in package messages, which says more.

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
	ReaderID = messages.ReaderID
	// Priority orders eviction.
	Priority = messages.Priority
	// Ticket is a point on a stream.
	Ticket = messages.Ticket
	// Namespace separates prompts that must not share blocks.
	Namespace = messages.Namespace
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
	Stats = messages.Stats
	// Event is one change of what the cache holds.
	Event = messages.Event
	// EventBatch is the answer to one read of events.
	EventBatch = messages.EventBatch
	// Refusal is the error of a request that was refused.
	Refusal = messages.Refusal
)

// Configurations are those of package windows, which says more.

type (
	// Model is what the cache must know of a model.
	Model = windows.Model
	// CacheConfig is the cache configuration.
	CacheConfig = windows.Config
	// PageCounts are the pages of one pool.
	PageCounts = windows.Counts
	// Pool is a set of layers whose contents lie in the same pages.
	Pool = windows.Pool
)

// NoPage marks a block without a page, in tables and in Inputs.
const NoPage = messages.NoPage

// The types of elements that models are made of most.
const (
	Float16  = windows.Float16
	BFloat16 = windows.BFloat16
	Float32  = windows.Float32
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
)

// DefaultCache returns the default configuration of a cache.
func DefaultCache() CacheConfig { return windows.DefaultConfig() }
