package script

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

type advanceRequest struct {
	MS int64 `json:"ms"`
}

func (q *advanceRequest) do(p *player) (any, error) {
	if q.MS < 0 {
		return nil, bad("advance", "ms %d is negative", q.MS)
	}
	if q.MS > int64((maxTime-p.clock.Now())/time.Millisecond) {
		return nil, bad("advance", "ms %d would take the clock over %d years", q.MS,
			int(maxTime.Hours())/24/365)
	}
	p.clock.Advance(time.Duration(q.MS) * time.Millisecond)
	return done("advance"), nil
}

type statsRequest struct{}

func (*statsRequest) do(p *player) (any, error) {
	s, err := p.engine.Stats(p.ctx)
	if err != nil {
		return nil, err
	}
	out := statsAnswer{head: done("stats")}
	out.Counters = countersAnswer{Requests: s.Requests, PromptTokens: s.PromptTokens,
		ReusedTokens: s.ReusedTokens}
	for i, pool := range s.Pools {
		out.Pools = append(out.Pools, named[tiersAnswer]{pool.Name, tiersAnswer{
			countAnswer(pool.Primary), countAnswer(pool.Secondary),
		}})
		c := pool.PoolCounters
		counters := poolCountersAnswer{
			c.AllocatedPages, c.ReusedFull, c.ReusedPartial, c.Missed, c.Evicted, c.Offloaded,
			c.Onboarded, c.Dropped, c.BytesOffloaded, c.BytesOnboarded, nil,
		}
		if holdsStates(p.engine.Pools()[i]) {
			counters.checkpointsAnswer = &checkpointsAnswer{c.Checkpoints, c.CheckpointsSkipped}
		}
		out.Counters.Pools = append(out.Counters.Pools, named[poolCountersAnswer]{pool.Name, counters})
	}
	return out, nil
}

type eventsRequest struct {
	Snapshot bool `json:"snapshot,omitempty"`
}

func (q *eventsRequest) do(p *player) (any, error) {
	read := p.engine.Events
	if q.Snapshot {
		read = p.engine.Snapshot
	}
	batch, err := read(p.ctx)
	if err != nil {
		return nil, err
	}
	batch.Snapshot = q.Snapshot
	return eventsAnswer{done("events"), q.Snapshot, eventAnswers(&batch, p.engine.Pools()),
			batch.Lost},
		nil
}

type verifyRequest struct{}

func (*verifyRequest) do(p *player) (any, error) {
	p.rig.Drain()
	// First, because it asks every actor: one that was to panic does so here, and not over
	// what is compared.
	wrong := p.engine.Check(p.ctx)
	for errors.Is(wrong, messages.ErrInternal) {
		wrong = p.engine.Check(p.ctx)
	}
	pages, problems, err := p.checkBytes()
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		// Joined errors stand one a line.
		problems = append(problems, strings.Split(wrong.Error(), "\n")...)
	}
	problems = append(problems, p.rig.Hazards()...)
	return verifyAnswer{done("verify"), pages, problems}, nil
}

// checkBytes checks the pages of the tree and of all running sequences.
func (p *player) checkBytes() (pages int, problems []string, err error) {
	claims := host.Claims{}
	if claims.Blocks, err = p.engine.Contents(p.ctx); err != nil {
		return 0, nil, err
	}
	for _, name := range p.names() {
		s := p.sequences[name]
		if s.lost != nil {
			continue // it claims nothing
		}
		tables, err := p.engine.TablesOf(p.ctx, s.id)
		if err = p.noticed(s, err); s.lost != nil {
			continue
		} else if err != nil {
			return 0, nil, err
		}
		claims.Sequences = append(claims.Sequences, host.Held{Name: name, Computed: s.computed,
			Beams: s.beams, Tables: tables})
	}
	verifier := host.Verifier{Layouts: p.layouts, Read: p.bytes}
	pages, problems = verifier.Verify(claims)
	return pages, append(problems, p.writer.Problems()...), nil
}

// actorPrefix stands before a pool's name in an actor's.
const actorPrefix = "pool:"

type faultRequest struct {
	Kind  string  `json:"kind"`
	Count *int64  `json:"count"`
	Actor *string `json:"actor"`
}

func (q *faultRequest) check(r *reader, _ string) {
	if q.Kind == "panic" && q.Actor == nil {
		r.missing("actor")
	}
}

func (q *faultRequest) do(p *player) (any, error) {
	if q.Kind == "panic" {
		return done("fault"), p.failActor(*q.Actor, q.Count)
	}
	if q.Kind == "store" {
		return done("fault"), p.failStore(q.Actor, q.Count)
	}
	direction, err := gpu.ParseDirection(q.Kind)
	switch {
	case err != nil:
		return nil, bad("fault", "kind %q is none of offload, onboard, copy, store, panic", q.Kind)
	case q.Actor != nil:
		return nil, bad("fault", "actor goes with kind panic alone")
	case q.Count != nil && (*q.Count < 1 || *q.Count > math.MaxInt32):
		return nil, bad("fault", "count %d is not between 1 and %d", *q.Count, math.MaxInt32)
	}
	return done("fault"), p.rig.FailCopies(direction, int(or(q.Count, 1)))
}

// failActor checks the actor's name: a pool's, or one of the three others.
func (p *player) failActor(actor string, count *int64) error {
	known := actor == "tree" || actor == "offloader" || actor == "coordinator"
	for _, pool := range p.engine.Pools() {
		known = known || actor == actorPrefix+pool.Name
	}
	switch {
	case !known:
		return bad("fault", "actor %q is none of pool:<name>, tree, offloader, coordinator", actor)
	case count != nil && *count != 1:
		return bad("fault", "count goes with failing copies alone")
	}
	return p.rig.PanicActor(actor)
}
