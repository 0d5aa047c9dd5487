package oracle_test

import (
	"errors"
	"fmt"
	"reflect"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// bijection learns which name of a is which name of b.
type bijection[T comparable] struct{ ab, ba map[T]T }

func newBijection[T comparable]() *bijection[T] {
	return &bijection[T]{map[T]T{}, map[T]T{}}
}

// same reports whether x of a and y of b can be one thing, and remembers it.
func (n *bijection[T]) same(x, y T) bool {
	b, knownA := n.ab[x]
	a, knownB := n.ba[y]
	if !knownA && !knownB {
		n.ab[x], n.ba[y] = y, x
		return true
	}
	return knownA && knownB && a == x && b == y
}

// same fails unless both were served with equal answers or refused alike.
func (r *run) same(t *rapid.T, what string, ea, eb error, a, b any) {
	t.Helper()
	if x, y := refusal(ea), refusal(eb); x != y {
		t.Fatalf("%s: errors differ:\n a: %s (%v)\n b: %s (%v)", what, x, ea, y, eb)
	}
	if ea == nil && !reflect.DeepEqual(a, b) {
		t.Fatalf("%s: answers differ:\n a: %+v\n b: %+v", what, a, b)
	}
}

// refusal is what of an error must agree: code, and the facts of out_of_pages.
func refusal(err error) string {
	var r *messages.Refusal
	switch {
	case err == nil:
		return "served"
	case !errors.As(err, &r):
		return "no refusal: " + err.Error()
	case r.Code == messages.ErrOutOfPages:
		return fmt.Sprintf("%s: pool %s needs %d, %d available", r.Code, r.Pool, r.Need, r.Available)
	}
	return string(r.Code)
}

// stepAnswers is what one side answered to a request of several steps.
type stepAnswers struct {
	results []messages.StepResult
	err     error
}

// sameSteps compares the answers step by step; of pages their numbers by pool,
// for the tables are compared as a whole.
func (r *run) sameSteps(t *rapid.T, what string, a, b stepAnswers) {
	t.Helper()
	r.same(t, what, a.err, b.err, len(a.results), len(b.results))
	for i := range a.results {
		r.same(t, what, a.results[i].Err, b.results[i].Err, pagesTaken(a.results[i]),
			pagesTaken(b.results[i]))
	}
	r.compareSaved(t)
}

// pagesTaken counts the new pages by pool; no pages at all may be a nil slice.
func pagesTaken(s messages.StepResult) string {
	text := ""
	for pool, pages := range s.NewPages {
		if len(pages) > 0 {
			text += fmt.Sprintf(" %d in pool %d", len(pages), pool)
		}
	}
	return text
}

// tablePairs compares page tables of one moment: what is one page for a must be
// one page for b.
type tablePairs []*bijection[messages.PageID]

func newTablePairs(r *run) tablePairs {
	var n tablePairs
	for range r.config.Pools {
		n = append(n, newBijection[messages.PageID]())
	}
	return n
}

func (n tablePairs) compare(t *rapid.T, what string, a, b messages.Tables) {
	t.Helper()
	fail := func() { t.Fatalf("%s differ:\n a: %v\n b: %v", what, a, b) }
	if len(a) != len(n) || len(b) != len(n) {
		fail()
	}
	for pool := range a {
		if len(a[pool]) != len(b[pool]) {
			fail()
		}
		for beam := range a[pool] {
			x, y := a[pool][beam], b[pool][beam]
			if len(x) != len(y) {
				fail()
			}
			for i := range x {
				if (x[i] == messages.NoPage) != (y[i] == messages.NoPage) ||
					x[i] != messages.NoPage && !n[pool].same(x[i], y[i]) {
					fail()
				}
			}
		}
	}
}

// compareState compares everything that can be read, after each operation.
func (r *run) compareState(t *rapid.T) {
	r.compareSaved(t)
	tables := newTablePairs(r)
	for i, s := range r.running {
		a, ea := r.a.TablesOf(r.ctx, s.id[0])
		b, eb := r.b.TablesOf(r.ctx, s.id[1])
		r.same(t, "tables", ea, eb, nil, nil)
		tables.compare(t, fmt.Sprintf("tables of the running sequence %d", i), a, b)
	}
	a, ea := r.a.Stats(r.ctx)
	b, eb := r.b.Stats(r.ctx)
	a.Rounds, b.Rounds = 0, 0
	// What is compared of stores is what was saved and fetched; a model has no calls in flight
	// and no device, and does not count steps.
	a.Store, b.Store = nil, nil
	for _, s := range []*inspect.Stats{&a, &b} {
		s.Calls, s.RefusedSteps, s.AppendedTokens, s.AppendedPages = inspect.CallStats{},
			inspect.StepRefusals{}, 0, 0
		s.ThrashTokens, s.Forgets, s.Weights, s.Memory = 0, inspect.ForgetStats{}, "",
			inspect.MemoryStats{}
	}
	r.same(t, "stats", ea, eb, a, b)
	r.compareContents(t)
	r.compareEvents(t)
	if err := r.a.Check(r.ctx); err != nil {
		t.Fatalf("check of a: %v", err)
	}
	if err := r.b.Check(r.ctx); err != nil {
		t.Fatalf("check of b: %v", err)
	}
}

// compareContents compares the keys of the trees and the tier in each pool.
// Blocks that no pool holds are passed over.
func (r *run) compareContents(t *rapid.T) {
	a, ea := r.a.Contents(r.ctx)
	b, eb := r.b.Contents(r.ctx)
	x, y := places(t, a), places(t, b)
	r.same(t, "contents", ea, eb, x, y)
}

// places gives by key in which tier each pool has the block.
func places(t *rapid.T, all []protocol.Content) map[string]string {
	paths := make([]string, len(all))
	found := map[string]string{}
	for i, c := range all {
		if c.Parent >= i {
			t.Fatalf("contents: block %d comes before its parent %d", i, c.Parent)
		}
		if c.Parent >= 0 {
			paths[i] = paths[c.Parent]
		} else {
			paths[i] = fmt.Sprintf("%q %q %v:", c.Namespace.Salt, c.Namespace.LoRA, c.Namespace.HasLoRA)
		}
		for j, token := range c.Tokens {
			paths[i] += fmt.Sprintf(" %d", token)
			if c.Covers != nil && c.Covers[j].Covered {
				paths[i] += fmt.Sprintf("<%x %d>", c.Covers[j].Hash[0], c.Covers[j].Position)
			}
		}
		at, held := "", false
		for _, l := range c.Pages {
			_, tier, ok := l.Page()
			switch {
			case !ok:
				at += "-"
			default:
				held = true
				at += tier.String()[:1]
			}
		}
		if held {
			found[paths[i]] = at
		}
	}
	return found
}
