package script

import (
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Engine is what a script drives. Every refusal is a *messages.Refusal; its
// code and numbers are passed on as they are.
type Engine interface {
	host.Engine
	// Validate checks the values of an admission, without looking at any state:
	// multimodal items, retention, beam width, chunk size.
	Validate(messages.AdmitRequest) error
}

// Setup is an open request whose values are right.
type Setup struct {
	Model windows.Model
	Cache windows.Config
	Pools []windows.Pool
	// Pages overrides the memory split, by PoolID; nil: DeviceMemory and Cache
	// decide.
	Pages        []windows.PageCounts
	DeviceMemory int64
	Seed         int64
	Clock        *Clock
	Store        *Store // nil: none
	Weights      string // the first epoch
}

// OpenFunc starts an engine and what it runs on. A refusal is passed on.
type OpenFunc func(Setup) (*Rig, error)

// Rig is an engine with its device.
type Rig struct {
	Engine Engine

	Launcher gpu.Launcher
	Compute  gpu.Stream // the host's own
	Pools    []gpu.Pool // the device's handles, by PoolID
	// Drain waits until every transfer and kernel is done.
	Drain func()
	// Bytes is the memory of a page when nothing is under way; nil if there is
	// no such page.
	Bytes func(gpu.Slot) []byte

	// Hazards lists accesses that nothing orders, since the engine was opened.
	Hazards func() []string
	// FailCopies makes the next count copies of one direction fail.
	FailCopies func(d gpu.Direction, count int) error
	// PanicActor makes the actor of that name panic at its next message.
	PanicActor func(actor string) error
	// Store is the engine, if it has a store; else nil.
	Store StoreEngine
	// Close frees the device, after the engine's Close.
	Close func() error
}

// Clock is virtual time: it stands still but for Advance. It may be read by any
// goroutine.
type Clock struct{ now atomic.Int64 }

// Now is the time since the engine was opened.
func (c *Clock) Now() time.Duration { return time.Duration(c.now.Load()) }

// Advance moves time on.
func (c *Clock) Advance(d time.Duration) { c.now.Add(int64(d)) }
