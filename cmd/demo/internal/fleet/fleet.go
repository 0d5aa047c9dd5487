package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
)

// Config is one run of a fleet.
type Config struct {
	Engines int
	Tokens  int // of a block
	Source  serve.Source
	// Routing follows events; without it engines are drawn by the seed.
	Routing bool
	Seed    uint64
	// KillAfter is the number of requests after which one engine is killed; the requests
	// are counted in two parts, before and behind. Kill says whether it is.
	KillAfter int
	Kill      bool
	// Open starts engine i.
	Open func(ctx context.Context, i int) (Engine, error)
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
	sources map[int]*serve.Request
	result  Result
	wait    time.Duration
}

// Run replays the requests of a source and closes all engines.
func Run(ctx context.Context, c Config) (*Result, error) {
	r := &run{config: &c, router: router{tokens: c.Tokens}, sources: map[int]*serve.Request{},
		result: Result{Killed: -1}}
	if !c.Routing {
		r.router.random = rand.New(rand.NewPCG(c.Seed, 0))
	}
	start := time.Now()
	err := r.open(ctx)
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

func (r *run) open(ctx context.Context) error {
	for i := range r.config.Engines {
		e, err := r.config.Open(ctx, i)
		if err != nil {
			return fmt.Errorf("engine %d: %w", i, err)
		}
		r.members = append(r.members, &member{Engine: e, number: i, alive: true,
			flights: map[int]*flight{}})
	}
	return nil
}

// play goes from window to window until the source has no more requests.
func (r *run) play(ctx context.Context) error {
	for {
		if err := errors.Join(ctx.Err(), r.accept()); err != nil {
			return err
		}
		if len(r.sources) == 0 {
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
	number := r.result.Requests
	r.result.Requests++
	r.sources[number] = q
	answer := make(Tokens, q.Answer)
	for i := range answer {
		answer[i] = q.Sample(i)
	}
	_, err := r.router.route(r.members, Request{Number: number, Prompt: q.Tokens[:q.Prompt:q.Prompt],
		Answer: answer, Arrival: q.Arrival})
	return err
}

// window makes all engines serve, each on a goroutine, and takes over what they say. The
// order in which they do that is that of their numbers.
func (r *run) window(ctx context.Context) error {
	r.now += window
	replies, errs := make([]Reply, len(r.members)), make([]error, len(r.members))
	var all sync.WaitGroup
	for i, m := range r.members {
		if !m.alive || len(m.flights) == 0 {
			continue // it has nothing to do, so nothing changes
		}
		w := Window{Until: r.now, Requests: m.send}
		m.send = nil
		all.Go(func() { replies[i], errs[i] = m.run(ctx, w) })
	}
	all.Wait()
	for i, m := range r.members {
		if errs[i] != nil {
			return fmt.Errorf("engine %d: %w", i, errs[i])
		}
		if !m.alive || len(m.flights) == 0 {
			continue
		}
		if err := r.take(ctx, m, replies[i]); err != nil {
			return fmt.Errorf("engine %d: %w", i, err)
		}
	}
	return nil
}

// take takes a reply over: answers go back to the source, events to the index.
func (r *run) take(ctx context.Context, m *member, reply Reply) error {
	m.last = reply
	for _, number := range reply.Started {
		if f := m.flights[number]; f != nil {
			m.start(f)
		}
	}
	for _, a := range reply.Done {
		f := m.flights[a.Number]
		if f == nil {
			return fmt.Errorf("an answer to request %d, which it was not sent", a.Number)
		}
		m.start(f)
		delete(m.flights, a.Number)
		if err := r.answered(f, a); err != nil {
			return err
		}
	}
	return m.follow(ctx, &reply)
}

// answered gives a request back to its source.
func (r *run) answered(f *flight, a Answer) error {
	q := r.sources[a.Number]
	delete(r.sources, a.Number)
	part := &r.result.Before
	switch {
	case f.again:
		part = &r.result.Again
	case a.Number >= r.config.KillAfter:
		part = &r.result.After
	}
	part.add(len(f.request.Prompt), a)
	if a.GivenUp {
		r.result.GivenUp++
	} else {
		r.wait += a.First - q.Arrival
	}
	q.Tokens = append(q.Tokens[:q.Prompt], f.request.Answer...)
	q.Outcome = serve.Outcome{Reused: a.Reused, GivenUp: a.GivenUp, First: a.First, Done: a.Done}
	return r.config.Source.Done(q)
}

// kill ends the engine that has the most requests, and sends these to others.
func (r *run) kill(ctx context.Context) error {
	victim := slices.MaxFunc(r.members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(len(a.flights), len(b.flights)), cmp.Compare(b.number, a.number))
	})
	r.result.Killed, r.result.LostBlocks = victim.number, victim.index().Blocks
	victim.alive = false
	if err := victim.kill(ctx, Window{Until: r.now + window, Requests: victim.send}); err != nil {
		return fmt.Errorf("engine %d: %w", victim.number, err)
	}
	var lost []*flight
	for _, f := range victim.flights {
		lost = append(lost, f)
	}
	slices.SortFunc(lost, func(a, b *flight) int { return a.request.Number - b.request.Number })
	clear(victim.flights)
	for _, f := range lost {
		r.result.Retried++
		f.request.Arrival = max(f.request.Arrival, r.now)
		again, err := r.router.route(r.members, f.request)
		if err != nil {
			return err
		}
		again.again = true
	}
	return nil
}

func (r *run) status() Status {
	s := Status{}
	prompt, reused := int64(0), int64(0)
	for _, p := range []*Part{&r.result.Before, &r.result.After, &r.result.Again} {
		s.Answered += p.Answered
		prompt += p.PromptTokens
		reused += p.ReusedTokens
	}
	s.HitRate = float64(reused) / float64(max(1, prompt))
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
		index := m.index()
		r.result.Events += index.Events
		if m.alive {
			m.alive = false
			r.result.IndexBlocks += index.Blocks
			reply, err := m.run(ctx, Window{Finish: true})
			if err != nil {
				return fmt.Errorf("engine %d: %w", m.number, err)
			}
			m.last = reply
			if reply.Blocks != index.Blocks {
				reply.Problems = append(reply.Problems,
					fmt.Sprintf("engine %d has published %d blocks, its index has %d", m.number, reply.Blocks,
						index.Blocks))
			}
			r.result.Problems = append(r.result.Problems, reply.Problems...)
			r.result.CheckedPages += int64(reply.Checked)
		}
		r.result.add(&m.last)
	}
	return nil
}

// abandon ends the engines of a run that has failed.
func (r *run) abandon(ctx context.Context) (err error) {
	for _, m := range r.members {
		if m.alive {
			err = errors.Join(err, m.kill(ctx, Window{}))
		}
	}
	return err
}
