package script

import (
	"context"
	"math"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// Store is what an open line says of a store.
type Store struct {
	Memory      *stores.Memory
	Save        actors.SavePolicy
	MinPriority messages.Priority
}

// StoreEngine is what a script asks of an engine with a store.
type StoreEngine interface {
	Flush(context.Context, messages.SequenceID) (saved int, err error)
	Fetch(context.Context, messages.Prefix) (actors.Fetched, error)
	Lookup(context.Context, messages.Prefix) (messages.Found, error)
}

// storeLine is the store of an open line.
type storeLine struct {
	Name        string  `json:"name"`
	Save        *string `json:"save"`
	MinPriority int64   `json:"min_priority,omitempty"`
}

// savePolicies are the words for them.
var savePolicies = map[string]actors.SavePolicy{
	"reuse": actors.SaveOnReuse, "commit": actors.SaveOnCommit, "host_evict": actors.SaveHostEvict,
}

// value checks the store; its problems join those of the configuration.
func (l *storeLine) value() (Store, []error) {
	var s Store
	var problems []error
	say := func(format string, args ...any) {
		problems = append(problems, refusals.New(messages.ErrConfigInvalid, format, args...))
	}
	if l.Name == "" {
		say("store: the name is empty")
	}
	if l.Save != nil {
		policy, ok := savePolicies[*l.Save]
		if !ok {
			say("store: save %q is none of reuse, commit, host_evict", *l.Save)
		}
		s.Save = policy
	}
	if l.MinPriority < 0 || l.MinPriority > int64(messages.MaxPriority) {
		say("store: min_priority %d is not between 0 and %d", l.MinPriority, messages.MaxPriority)
	}
	s.MinPriority = messages.Priority(l.MinPriority & math.MaxUint8)
	return s, problems
}

// memory is the store of a name: there from its first open to the end of the script.
func (c *conversation) memory(name string) *stores.Memory {
	if c.stores == nil {
		c.stores = map[string]*stores.Memory{}
	}
	if c.stores[name] == nil {
		c.stores[name] = &stores.Memory{}
	}
	return c.stores[name]
}

// waitForStore waits until what the request has saved is in the store, so that answers do not
// depend on when saves happen, nor on how many save pages there are. An engine that has failed
// saves nothing, and its answers say so.
func (c *conversation) waitForStore() {
	if c.host != nil {
		c.host.waitForStore()
	}
}

// waitForStore waits until what was saved so far is in the store, and counts it.
func (p *player) waitForStore() {
	if p.rig.Store != nil {
		n, _ := p.rig.Store.Flush(p.ctx, 0)
		p.saved += n
	}
}

// withoutStore refuses what needs a store.
func (p *player) withoutStore(op string) error {
	if p.rig.Store == nil {
		return refusals.New(messages.ErrNotSupported, "%s: the engine was opened without a store", op)
	}
	return nil
}

type flushAnswer struct {
	head
	SavedObjects int `json:"saved_objects"`
}

type fetchAnswer struct {
	head
	FetchedBlocks int `json:"fetched_blocks"`
	LocalTokens   int `json:"local_tokens"`
}

type flushRequest struct {
	Seq *string `json:"seq"`
}

func (q *flushRequest) do(p *player) (any, error) {
	if err := p.withoutStore("flush"); err != nil {
		return nil, err
	}
	if q.Seq != nil {
		s, err := p.named(*q.Seq)
		if err != nil {
			return nil, err
		}
		n, err := p.rig.Store.Flush(p.ctx, s.id)
		if p.saved += n; err != nil {
			return nil, p.noticed(s, err)
		}
	}
	answer := flushAnswer{done("flush"), p.saved}
	p.saved = 0
	return answer, nil
}

type fetchRequest struct {
	prefixLine
}

func (q *fetchRequest) do(p *player) (any, error) {
	prefix, err := p.prefixOf("fetch", q.prefixLine)
	if err != nil {
		return nil, err
	}
	if err := p.withoutStore("fetch"); err != nil {
		return nil, err
	}
	fetched, err := p.rig.Store.Fetch(p.ctx, prefix)
	return fetchAnswer{done("fetch"), fetched.Blocks, fetched.LocalTokens}, err
}

// failStore makes the next calls of the store fail.
func (p *player) failStore(actor *string, count *int64) error {
	switch {
	case actor != nil:
		return bad("fault", "actor goes with kind panic alone")
	case count != nil && (*count < 1 || *count > math.MaxInt32):
		return bad("fault", "count %d is not between 1 and %d", *count, math.MaxInt32)
	}
	if err := p.withoutStore("fault"); err != nil {
		return err
	}
	p.memory.Fail(int(or(count, 1)))
	return nil
}
