package kvactor

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The words of requests and answers, which package messages documents.
type (
	Token           = messages.Token
	PageID          = messages.PageID
	PoolID          = messages.PoolID
	SequenceID      = messages.SequenceID
	PinID           = messages.PinID
	ReaderID        = messages.ReaderID
	Priority        = messages.Priority
	Ticket          = messages.Ticket
	Namespace       = messages.Namespace
	MultimodalItem  = messages.MultimodalItem
	Retention       = messages.Retention
	RetentionRange  = messages.RetentionRange
	DecodeRetention = messages.DecodeRetention
	AdmitRequest    = messages.AdmitRequest
	Admitted        = messages.Admitted
	BeamStep        = messages.BeamStep
	PlacedPage      = messages.PlacedPage
	Tables          = messages.Tables
	Prefix          = messages.Prefix
	Selector        = messages.Selector
	Found           = messages.Found
	Pinned          = messages.Pinned
	Rebalanced      = messages.Rebalanced
	Stats           = messages.Stats
	Event           = messages.Event
	EventBatch      = messages.EventBatch
	Refusal         = messages.Refusal
)

// The words of configurations, which package windows documents.
type (
	Model       = windows.Model
	CacheConfig = windows.Config
	PageCounts  = windows.Counts
	Pool        = windows.Pool
)

// NoPage marks a block without a page, in tables and in Inputs.
const NoPage = messages.NoPage

// The types of elements that models are made of most.
const (
	Float16  = windows.Float16
	BFloat16 = windows.BFloat16
	Float32  = windows.Float32
)

// The refusals, for errors.Is.
var (
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
