package actors

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/cross"
	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// joint is the two engines that the one of an encoder–decoder model is made of
// (see package cross). Each has all actors of an engine of its own and shares
// nothing with the other but the device.
type joint struct {
	decoder, encoder *Engine
	point            failpoint.Point // of the actor that joins them
}

// side is what an engine is told that is one of two. The decoder's is told the
// pools of both, which its log begins with; the encoder's where that log is, what
// number its pool has there, and how long an input is without its padding.
// Whichever fails, the joint engine has failed.
type side struct {
	pools       []messages.PoolInfo
	events      *mailbox.Mailbox
	first       messages.PoolID
	inputTokens func(messages.Namespace) int
	failed      func(cause error)
	prefix      string // of the names of its failpoints
}

// spawnJoint starts both and the actor that joins them; the cross pool is the
// last of the pools.
func spawnJoint(parent actor.SpawnerContext, config Config, pools []windows.Pool, counts []windows.Counts, s settings.Settings) (*Engine, error) {
	known := coordinatorConfig(&config, pools, counts)
	known.EncoderMaxLen = config.Model.EncoderMaxLen
	e := newEngine(parent, config, known, s)
	e.joint = &joint{}
	if err := e.spawnJoint(parent, pools, counts); err != nil {
		e.stop()
		<-e.ending.stopped
		_, released := e.giveBack(context.Background())
		return nil, errors.Join(err, released)
	}
	return e, nil
}

// spawnJoint starts the actors of a joint engine.
func (e *Engine) spawnJoint(parent actor.SpawnerContext, pools []windows.Pool, counts []windows.Counts) error {
	if err := e.spawnSides(parent, pools, counts); err != nil {
		return err
	}
	family := &joinFamily{
		engine: e, ready: make(chan error, 1), restarts: restarts{limit: e.settings.MaxRestarts, within: e.settings.RestartWindow},
	}
	pid, err := e.spawnParent(parent, family)
	if err != nil {
		return err
	}
	e.parentIs(pid)
	return <-family.ready
}

// spawnSides starts the two engines; nobody but the join sends to them.
func (e *Engine) spawnSides(parent actor.SpawnerContext, pools []windows.Pool, counts []windows.Counts) error {
	last := len(pools) - 1
	name, o := e.settings.Name, e.settings
	o.MaxInFlight, o.RefuseBusy = math.MaxInt, false // the joint engine's gate is before them

	decoder := e.config.decoder(counts[:last])
	known := coordinatorConfig(&decoder, pools[:last], counts[:last])
	for _, s := range coordinator.Scaled(pools[last:]) {
		s.Cross = true
		known.Scales = append(known.Scales, s)
	}
	o.Name = name + "-self"
	var err error
	if e.joint.decoder, err = spawnOne(parent, decoder, known, o, side{pools: e.pools, failed: e.fail}); err != nil {
		return err
	}

	encoder, own := e.config.encoder(counts[last:]), pools[last]
	own.ID = 0
	known = coordinatorConfig(&encoder, []windows.Pool{own}, counts[last:])
	known.ReuseAll = true
	o.Name = name + "-cross"
	e.joint.encoder, err = spawnOne(parent, encoder, known, o, side{
		prefix: "cross:", events: e.joint.decoder.events, first: messages.PoolID(last),
		failed:      e.fail,
		inputTokens: cross.InputTokens,
	})
	return err
}

// decoder is the configuration of the decoder's engine.
func (c Config) decoder(counts []windows.Counts) Config {
	c.Model.CrossLayers, c.Model.CrossKVHeads, c.Model.EncoderMaxLen = 0, 0, 0
	c.Cache.CrossKVCacheFraction = 0
	c.Pages = counts
	return c
}

// encoder is the configuration of the cross attention's engine, whose prompts
// are encoder inputs padded to whole blocks.
func (c Config) encoder(counts []windows.Counts) Config {
	tpb := c.Cache.TokensPerBlock
	pool, _ := windows.CrossPool(c.Model, c.Cache)
	c.Model = windows.Model{
		Layers: len(pool.Layers), KVHeads: []int{pool.KVHeads}, DType: pool.DType,
		HeadDim: pool.HeadDim, ValueDim: pool.ValueDim, KVFactor: pool.KVFactor, Layout: pool.Layout,
		MaxSeqLen: (c.Model.EncoderMaxLen + tpb - 1) / tpb * tpb,
	}
	c.Cache.CrossKVCacheFraction = 0
	c.Cache.MaxAttentionWindow, c.Cache.SinkTokenLength, c.Cache.PoolFractions, c.Cache.ExpectedSeqLen = nil, 0, nil, 0
	c.Cache.EnablePartialReuse = false // there is nothing but whole blocks
	c.Pages = counts
	return c
}

// giveBack gives back what the engine has taken of the device, when its own actors
// have stopped. over says that nothing is left to be given back.
func (e *Engine) giveBack(ctx context.Context) (over bool, err error) {
	if e.joint == nil {
		return e.streams.close(ctx)
	}
	over = true
	var problems []error
	for _, inner := range []*Engine{e.joint.decoder, e.joint.encoder} {
		if inner == nil {
			continue
		}
		_, err := inner.Close(ctx)
		over = over && (err == nil || ctx.Err() == nil)
		problems = append(problems, err)
	}
	return over, errors.Join(problems...)
}

// joinFamily is the parent of the actor that joins two engines, and its
// supervisor. If that actor panics it is restarted and sorts out what the round
// under way has left on one side only; too many panics in a short time, and the
// engine has failed.
type joinFamily struct {
	engine   *Engine
	ready    chan error
	restarts restarts
}

var _ actor.SupervisorStrategy = (*joinFamily)(nil)

// Receive starts the child.
func (f *joinFamily) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		f.ready <- f.start(ctx)
	case *actor.Stopping:
		f.engine.orphan.Store(!f.engine.closing.Load() && f.engine.failed.Load() == nil)
	case *actor.Stopped:
		f.engine.terminated()
	}
}

func (f *joinFamily) start(ctx actor.Context) error {
	e := f.engine
	a := newJoinActor(e)
	e.settings.Failpoints.Add("join", &e.joint.point)
	none := mailbox.OnAbort(nil)
	pid, err := ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }, e.props(none)...), "join")
	if err != nil {
		return fmt.Errorf("actors: spawn of join: %w", err)
	}
	e.front, e.coordinator = pid, mailbox.Of(e.system, pid)
	a.port.self = e.coordinator
	return nil
}

// HandleFailure restarts the actor, or makes the engine fail.
func (f *joinFamily) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	cause, failed := f.engine.failedActor("join", reason, &f.restarts)
	if failed {
		supervisor.StopChildren(child)
		return
	}
	supervisor.RestartChildren(child)
	f.engine.coordinator.PostUserMessage(&joinFailed{messages.Refuse(messages.Internal, "the request was aborted: %v", cause)})
}

// resolveJoint adds the cross pool to what the configuration says of the others.
func (c *Config) resolveJoint(pools []windows.Pool) ([]windows.Pool, []windows.Counts, error) {
	cross, _ := windows.CrossPool(c.Model, c.Cache)
	all := append(pools, cross)
	if c.Pages != nil {
		return all, c.Pages, validatePages(all, c.Pages)
	}
	memory, err := c.Device.Memory()
	if err != nil {
		return nil, nil, err
	}
	budget := windows.Budget{DeviceBytes: memory.Free, HostBytes: c.Cache.HostCacheSize}
	counts, err := windows.Split(pools, c.Model, c.Cache, budget)
	if err != nil {
		return nil, nil, err
	}
	own, err := windows.SplitCross(c.Model, c.Cache, budget)
	return all, append(counts, own), err
}

// SetScales sets what keys and values of layers with 8-bit elements were
// divided by, all or none. Scales that nobody has set are 1. It touches no page:
// set scales before the first admission, or after a Reset, since what is cached
// was quantised with those before.
func (e *Engine) SetScales(ctx context.Context, scales []messages.LayerScale) error {
	m := &messages.WriteScales{Scales: scales}
	return first(e.Do(ctx, m), &m.Err)
}

// Scales reads the scales of all layers with 8-bit elements: of self attention
// by layer, then of cross attention by layer.
func (e *Engine) Scales(ctx context.Context) ([]messages.LayerScale, error) {
	m := &messages.ReadScales{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Scales, err
}
