package oracle_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// mutant is an engine that is wrong in one thing, and a word that the report
// of the difference must hold.
type mutant struct {
	name, says string
	open       func(oracle.Config) Engine
}

func mutants() []mutant {
	changed := func(change func(*oracle.Config)) func(oracle.Config) Engine {
		return func(c oracle.Config) Engine {
			c.Pools = append([]oracle.PoolConfig(nil), c.Pools...)
			change(&c)
			return second(c)
		}
	}
	return []mutant{
		{"lookup sees nothing", "lookup", func(c oracle.Config) Engine { return &blind{second(c)} }},
		{"why is always cold", "admit", func(c oracle.Config) Engine { return &cold{second(c)} }},
		{"a dropped page is shown", "tables",
			func(c oracle.Config) Engine { return &clinging{second(c)} }},
		{"pages are shared that are not", "tables",
			func(c oracle.Config) Engine { return &sharing{second(c)} }},
		{"evictions are not counted", "stats",
			func(c oracle.Config) Engine { return &forgetful{second(c)} }},
		{"removals are silent", "event", func(c oracle.Config) Engine { return &silent{second(c)} }},
		{"refusals say too much is available", "available",
			func(c oracle.Config) Engine { return &generous{second(c)} }},
		{"a fetch brings nothing", "fetch",
			func(c oracle.Config) Engine { return &fetchless{second(c)} }},
		{"saves are not counted", "objects saved",
			func(c oracle.Config) Engine { return &thrifty{second(c)} }},
		{"one page less", "", changed(func(c *oracle.Config) { c.Pools[0].Primary-- })},
		{"copies instead of takeovers", "",
			changed(func(c *oracle.Config) { c.CopyOnPartialReuse = !c.CopyOnPartialReuse })},
		{"everything is offloaded", "",
			changed(func(c *oracle.Config) {
				c.SecondaryOffloadMinPriority = 36 -
					c.SecondaryOffloadMinPriority/2
			})},
		{"no partial reuse", "", changed(func(c *oracle.Config) { c.PartialReuse = !c.PartialReuse })},
		{"the sinks leave the window", "", changed(func(c *oracle.Config) {
			for i := range c.Pools {
				c.Pools[i].Sink = 0
			}
		})},
	}
}

type blind struct{ Model }

func (*blind) Lookup(context.Context, messages.Prefix) (messages.Found, error) {
	return messages.Found{}, nil
}

type cold struct{ Model }

func (e *cold) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	a, err := e.Model.Admit(ctx, r)
	if a.MissReason == messages.ReasonHit {
		a.MissReason = messages.ReasonCold
	}
	return a, err
}

type clinging struct{ Model }

func (e *clinging) TablesOf(ctx context.Context, s messages.SequenceID) (messages.Tables, error) {
	t, err := e.Model.TablesOf(ctx, s)
	for _, beams := range t {
		for _, table := range beams {
			for i := range table {
				table[i] = max(table[i], 0)
			}
		}
	}
	return t, err
}

type sharing struct{ Model }

func (e *sharing) TablesOf(ctx context.Context, s messages.SequenceID) (messages.Tables, error) {
	t, err := e.Model.TablesOf(ctx, s)
	for _, beams := range t {
		for _, table := range beams {
			for i := range table {
				if table[i] == 1 {
					table[i] = 0
				}
			}
		}
	}
	return t, err
}

type forgetful struct{ Model }

func (e *forgetful) Stats(ctx context.Context) (inspect.Stats, error) {
	s, err := e.Model.Stats(ctx)
	for i := range s.Pools {
		s.Pools[i].Evicted = 0
	}
	return s, err
}

type silent struct{ Model }

func (e *silent) Events(ctx context.Context) (kvevents.EventBatch, error) {
	b, err := e.Model.Events(ctx)
	var loud []kvevents.Event
	for _, x := range b.Events {
		if x.Type != kvevents.EventRemoved {
			loud = append(loud, x)
		}
	}
	b.Events = loud
	return b, err
}

type fetchless struct{ Model }

func (e *fetchless) Fetch(ctx context.Context, q messages.Prefix) (int, int, error) {
	found, err := e.Lookup(ctx, q)
	return 0, found.MatchedTokens, err
}

type thrifty struct{ Model }

func (e *thrifty) Flush(ctx context.Context, id messages.SequenceID) (int, error) {
	_, err := e.Model.Flush(ctx, id)
	return 0, err
}

type generous struct{ Model }

func (e *generous) Admit(ctx context.Context, q messages.AdmitRequest) (messages.Admitted, error) {
	a, err := e.Model.Admit(ctx, q)
	var r *messages.Refusal
	if errors.As(err, &r) && r.Code == messages.ErrOutOfPages {
		err = refusals.OutOfPages(r.Pool, r.Need, r.Available+1)
	}
	return a, err
}

// recorder is a test that only notes that it failed.
type recorder struct {
	testing.TB
	failed bool
	text   strings.Builder
}

func (r *recorder) note(text string)          { r.text.WriteString(text + "\n") }
func (r *recorder) Logf(f string, a ...any)   { r.note(fmt.Sprintf(f, a...)) }
func (r *recorder) Log(a ...any)              { r.note(fmt.Sprint(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.Logf(f, a...); r.failed = true }
func (r *recorder) Error(a ...any)            { r.Log(a...); r.failed = true }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); r.FailNow() }
func (r *recorder) Fatal(a ...any)            { r.Error(a...); r.FailNow() }
func (r *recorder) Failed() bool              { return r.failed }
func (r *recorder) Fail()                     { r.failed = true }
func (r *recorder) FailNow()                  { r.failed = true; panic(r) }
func (r *recorder) Helper()                   {}

// failureOf runs a property that must fail and gives what it said. The cases are
// the same each time: drawn again, none of the five hundred shows the rarest of the
// differences in one of some hundred runs.
func failureOf(t *testing.T, property func(*rapid.T)) string {
	t.Helper()
	for name, value := range map[string]string{
		"rapid.nofailfile": "true", "rapid.shrinktime": "50ms", "rapid.checks": "500", "rapid.seed": "1",
	} {
		f := flag.Lookup(name)
		old := f.Value.String()
		require.NoError(t, f.Value.Set(value))
		defer func() { _ = f.Value.Set(old) }()
	}
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		rapid.Check(r, property)
	}()
	require.True(t, r.failed, "the difference was not found")
	return r.text.String()
}
