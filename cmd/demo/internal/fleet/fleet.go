package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/offloader/stores"
)

// Config is one run of a fleet.
type Config struct {
	Engines int
	Source  serve.Source
	// Routing follows events; without it engines are drawn by the seed.
	Routing bool
	Seed    uint64
	// KillAfter is the number of requests after which one engine is killed; the requests
	// are counted in two parts, before and behind. Kill says whether it is.
	KillAfter int
	Kill      bool
	Settings  Settings     // of each engine
	Store     stores.Store // of all of them; nil: none
	// Progress is called after each window.
	Progress func(Status)
}

// window is the time between two looks of the router: the interval at which engines
// publish events, and at most how late a router knows what they hold.
const window = 100 * time.Millisecond

// run is a fleet that runs.
type run struct {
	config  *Config
	router  router
	members []*member
	now     time.Duration // the end of the last window
	open    int           // requests that have not been answered
	result  Result
	wait    time.Duration
}

// Run replays the requests of a source and closes all engines.
func Run(ctx context.Context, c Config) (*Result, error) {
	r := &run{config: &c, router: router{tokens: c.Settings.TokensPerBlock},
		result: Result{Killed: -1}}
	if !c.Routing {
		r.router.random = rand.New(rand.NewPCG(c.Seed, 0))
	}
	start := time.Now()
	err := r.start(ctx)
	if err == nil {
		err = r.play(ctx)
	}
	if err == nil {
		err = r.finish(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.abandon(context.WithoutCancel(ctx)))
	}
	r.result.FleetSeconds = r.now.Seconds()
	r.result.close(time.Since(start), r.wait)
	return &r.result, nil
}

func (r *run) start(ctx context.Context) error {
	for i := range r.config.Engines {
		h, err := newHost(ctx, r.config.Settings, r.config.Store)
		if err != nil {
			return fmt.Errorf("engine %d: %w", i, err)
		}
		r.members = append(r.members, newMember(i, h, h))
	}
	return nil
}

// play goes from window to window until the source has no more requests.
func (r *run) play(ctx context.Context) error {
	for {
		if err := errors.Join(ctx.Err(), r.accept()); err != nil {
			return err
		}
		if r.open == 0 {
			more, err := r.skip()
			if err != nil || !more {
				return err
			}
			continue
		}
		if r.config.Kill && r.result.Requests >= r.config.KillAfter && r.result.Killed < 0 {
			if err := r.kill(ctx); err != nil {
				return err
			}
		}
		if err := r.window(ctx); err != nil {
			return err
		}
		if r.config.Progress != nil {
			r.config.Progress(r.status())
		}
	}
}

// accept routes the requests that arrive in the next window.
func (r *run) accept() error {
	for {
		q, err := r.config.Source.Next(r.now+window, serve.Working)
		if err != nil || q == nil {
			return err
		}
		if err := r.send(q); err != nil {
			return err
		}
	}
}

// skip goes on to the next request when there is nothing to do.
func (r *run) skip() (more bool, err error) {
	q, err := r.config.Source.Next(r.now, serve.Idle)
	if err != nil || q == nil {
		return false, err
	}
	r.now = max(r.now, q.Arrival)
	return true, r.send(q)
}

// send routes a request under a number of the fleet's.
func (r *run) send(q *serve.Request) error {
	f := &flight{request: q, number: r.result.Requests, arrival: q.Arrival}
	r.result.Requests++
	r.open++
	return r.router.route(r.members, f)
}

// window makes all engines serve, each on a goroutine, and takes over what they have done. The
// order in which they do that is that of their numbers.
func (r *run) window(ctx context.Context) error {
	r.now += window
	errs := make([]error, len(r.members))
	var all sync.WaitGroup
	busy := func(m *member) bool { return m.alive && len(m.flights) > 0 } // else nothing changes
	for i, m := range r.members {
		if busy(m) {
			requests := m.send
			m.send = nil
			all.Go(func() { errs[i] = m.host.run(ctx, requests, r.now) })
		}
	}
	all.Wait()
	for i, m := range r.members {
		err := errs[i]
		if err == nil && busy(m) {
			err = r.take(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("engine %d: %w", i, err)
		}
	}
	return nil
}

// take takes a window over: answers go back to the source, events to the index.
func (r *run) take(ctx context.Context, m *member) error {
	for _, f := range m.flights {
		if f.request.Outcome.First > 0 {
			m.start(f)
		}
	}
	for _, q := range m.host.done {
		f := m.flights[q]
		m.start(f)
		delete(m.flights, q)
		if err := r.answered(f); err != nil {
			return err
		}
	}
	m.host.done = m.host.done[:0]
	return m.host.follow(ctx)
}

// answered gives a request back to its source.
func (r *run) answered(f *flight) error {
	r.open--
	part := &r.result.Before
	switch {
	case f.again:
		part = &r.result.Again
	case f.number >= r.config.KillAfter:
		part = &r.result.After
	}
	if q := f.request; q.Outcome.GivenUp {
		r.result.GivenUp++
	} else {
		part.add(q)
		r.wait += q.Outcome.First - f.arrival
	}
	return r.config.Source.Done(f.request)
}

// kill ends the engine that has the most requests, and sends these to others.
func (r *run) kill(ctx context.Context) error {
	victim := slices.MaxFunc(r.members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(len(a.flights), len(b.flights)), cmp.Compare(b.number, a.number))
	})
	r.result.Killed, r.result.LostBlocks = victim.number, victim.host.blocks()
	victim.alive = false
	r.result.add(victim.host)
	if err := victim.host.kill(ctx); err != nil {
		return fmt.Errorf("engine %d: %w", victim.number, err)
	}
	lost := slices.SortedFunc(maps.Values(victim.flights),
		func(a, b *flight) int { return a.number - b.number })
	clear(victim.flights)
	for _, f := range lost {
		r.result.Retried++
		q := f.request
		q.Tokens, q.Outcome, q.Arrival = q.Tokens[:q.Prompt], serve.Outcome{}, max(q.Arrival, r.now)
		f.started, f.again = false, true
		if err := r.router.route(r.members, f); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) status() Status {
	all := r.result.all()
	s := Status{Answered: all.Answered, HitRate: all.HitRate}
	for _, m := range r.members {
		n := len(m.flights)
		if !m.alive {
			n = -1
		}
		s.Flights = append(s.Flights, n)
	}
	return s
}

// finish checks all engines that are alive and closes them.
func (r *run) finish(ctx context.Context) error {
	for _, m := range r.members {
		r.result.Events += m.host.events
		if !m.alive {
			continue
		}
		m.alive = false
		r.result.IndexBlocks += m.host.blocks()
		checked, problems, err := m.host.finish(ctx)
		if err != nil {
			return fmt.Errorf("engine %d: %w", m.number, err)
		}
		r.result.Problems = append(r.result.Problems, problems...)
		r.result.CheckedPages += int64(checked)
		r.result.add(m.host)
	}
	return nil
}

// abandon ends the engines of a run that has failed.
func (r *run) abandon(ctx context.Context) (err error) {
	for _, m := range r.members {
		if m.alive {
			err = errors.Join(err, m.host.kill(ctx))
		}
	}
	return err
}
