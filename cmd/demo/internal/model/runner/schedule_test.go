package runner_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

var (
	scheduleCount = flag.Int("schedules", 400, "random schedules that TestRandomSchedules plays")
	firstSeed     = flag.Uint64("first-seed", 0, "seed of the first of them")
)

// Hosts that share an engine do things at random: whatever they do, everything
// that they compute has the bits of the sequence alone.
func TestRandomSchedules(t *testing.T) {
	n := *scheduleCount
	if testing.Short() {
		n = min(n, 40)
	}
	s := schedules{references: map[string]*reference{}, played: map[string]int{}}
	for i := range uint64(n) {
		s.play(t, *firstSeed+i)
		if (i+1)%500 == 0 {
			t.Logf("%d schedules", i+1) // with -v one sees it while they are played
		}
	}
	if n >= 400 {
		for _, name := range fixtures {
			assert.Positive(t, s.played[name], name)
		}
	}
}

// Schedules that have found mistakes: a kernel that declared more pages than it writes.
func TestSchedulesOnceFailed(t *testing.T) {
	s := schedules{references: map[string]*reference{}, played: map[string]int{}}
	for _, seed := range []uint64{746} {
		s.play(t, seed)
	}
}

// schedules plays schedules, and keeps what each model answers.
type schedules struct {
	references map[string]*reference // by model and type of the cache
	played     map[string]int        // by model
}

func (s *schedules) play(t *testing.T, seed uint64) {
	t.Helper()
	dtypes := []windows.DType{windows.Float32, windows.Float32, windows.BFloat16, windows.Int8}
	rng := rand.New(rand.NewPCG(seed, 0))
	f, dtype := fixture(t, fixtures[rng.IntN(len(fixtures))]), dtypes[rng.IntN(len(dtypes))]
	key := f.Name + string(dtype)
	if s.references[key] == nil {
		s.references[key] = newReference(t, f, runner.Config{DType: dtype})
	}
	s.played[f.Name]++
	playSchedule(t, f, s.references[key], dtype, seed, rng)
	if t.Failed() {
		t.Fatalf("go test -run TestRandomSchedules -args -first-seed %d -schedules 1", seed)
	}
}

func playSchedule(
	t *testing.T, f *fixtureModel, a *reference, dtype windows.DType, seed uint64, rng *rand.Rand,
) {
	t.Helper()
	points := &enginetest.Failpoints{}
	c := runner.Config{
		TokensPerBlock: 2 << rng.IntN(3), DType: dtype, Pages: 16 + rng.IntN(60), HostPages: rng.IntN(60),
		Seed:   int64(seed),
		MaxLen: 512, Checked: true, Workers: 1, Options: []actors.Option{actors.WithRestartLimit(1000, 1),
			enginetest.WithFailpoints(points)},
		Adjust: func(c *windows.Config) {
			c.CopyOnPartialReuse, c.EnablePartialReuse, c.OffloadAhead = seed%2 == 0, seed%5 != 0,
				seed%3 != 0
		},
	}
	c.Chunk = c.TokensPerBlock * rng.IntN(4)
	r, err := runner.Open(f.Model, c)
	require.NoError(t, err)
	p := newPlayer(t, f, a, seed, r)
	p.points = points
	p.play(60)
	p.leave()
	require.NoError(t, enginetest.Repeat(func() error { return r.Engine.Check(t.Context()) }),
		"seed %d", seed)
	require.Empty(t, r.Hazards(), "seed %d", seed)
	require.NoError(t, r.Wait(t.Context()), "seed %d", seed)
	require.NoError(t, r.Close(), "seed %d", seed)
}

// player does things at random with the sequences of a host.
type player struct {
	t        *testing.T
	f        *fixtureModel
	a        *reference
	rng      *rand.Rand
	host     *runner.Runner
	running  []*member
	points   *enginetest.Failpoints // nil: no failures
	tolerant bool                   // wrong bits are noted, not failed
	wrong    bool
}

// member is a running sequence.
type member struct {
	*history
}

func newPlayer(t *testing.T, f *fixtureModel, a *reference, seed uint64, r *runner.Runner) *player {
	p := &player{t: t, f: f, a: a, rng: rand.New(rand.NewPCG(seed, 1)), host: r}
	return p
}

func (p *player) play(steps int) {
	for range steps {
		switch n := p.rng.IntN(100); {
		case n < 25 && len(p.running) < 6:
			p.admit()
		case n < 70:
			p.step()
		case n < 78:
			p.with(p.fork)
		case n < 84:
			p.with(p.draft)
		case n < 92:
			p.with(p.release)
		case n < 95:
			p.with(p.preempt)
		default:
			p.disturb()
		}
	}
}

func (p *player) leave() {
	for len(p.running) > 0 {
		p.release(p.running[0])
	}
}

// with does something with a running sequence whose prompt is computed.
func (p *player) with(do func(*member)) {
	if len(p.running) > 0 {
		do(p.running[p.rng.IntN(len(p.running))])
	}
}

// admit takes in the beginning of a fixture's prompt, perhaps with another end.
func (p *player) admit() {
	c := p.f.Cases[p.rng.IntN(len(p.f.Cases))]
	q := runner.Request{Tokens: slices.Clone(c.Tokens[:1+p.rng.IntN(len(c.Tokens))]),
		Encoder: c.Encoder}
	if p.rng.IntN(3) == 0 {
		q.Tokens[len(q.Tokens)-1] = messages.Token(p.rng.IntN(p.f.Vocab))
	}
	q.Salt = []string{"", "", "s"}[p.rng.IntN(3)]
	p.take(q)
}

func (p *player) take(q runner.Request) {
	s, err := p.host.Admit(p.t.Context(), q)
	if p.refused(err) {
		return
	}
	// Without logits no one waits for the chunks before the last.
	from := s.Reused
	if s.AllLogits = p.rng.IntN(2) == 0; !s.AllLogits {
		from = len(q.Tokens) - 1
	}
	p.running = append(p.running, &member{&history{Sequence: s, ask: q, from: from}})
}

// refused tells whether something was refused for a reason that a host has to expect.
func (p *player) refused(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []error{messages.ErrOutOfPages, messages.ErrSequenceLost,
		messages.ErrInternal} {
		if errors.Is(err, known) {
			return true
		}
	}
	require.NoError(p.t, err)
	return true
}

// step runs a step of some of a host's sequences: a chunk of a prompt or a token.
func (p *player) step() {
	var batch []*member
	for _, m := range slices.Clone(p.running) { // grow may drop some
		if p.rng.IntN(4) > 0 && p.grow(m) {
			batch = append(batch, m)
		}
	}
	if len(batch) == 0 {
		return
	}
	sequences := make([]*runner.Sequence, len(batch))
	for i, m := range batch {
		sequences[i] = m.Sequence
	}
	errs, err := p.host.Compute(p.t.Context(), sequences...)
	for i, m := range batch {
		if p.refused(err) || p.refused(errs[i]) {
			p.drop(m) // lost, or in doubt
			continue
		}
		m.rows = append(m.rows, m.Logits...)
	}
}

// grow appends a token if all are computed. It tells whether there is something
// to compute.
func (p *player) grow(m *member) bool {
	if m.Computed() < len(m.Tokens) {
		return true
	}
	if len(m.Tokens) > 70 || len(m.Logits) == 0 {
		return false
	}
	errs, err := p.host.Append(p.t.Context(), []*runner.Sequence{m.Sequence},
		[][]messages.Token{{p.token(m)}})
	switch {
	case err != nil && p.refused(err):
		p.drop(m)
		return false
	case errors.Is(errs[0], messages.ErrOutOfPages):
		return false // another time
	case p.refused(errs[0]):
		p.drop(m)
		return false
	}
	return true
}

// token is the greedy choice, or any.
func (p *player) token(m *member) messages.Token {
	if p.rng.IntN(2) == 0 {
		return m.Next()
	}
	return messages.Token(p.rng.IntN(p.f.Vocab))
}

// idle tells whether all tokens of a sequence are computed.
func (m *member) idle() bool { return m.Computed() == len(m.Tokens) && len(m.Logits) > 0 }

func (p *player) fork(m *member) {
	if !m.idle() || len(p.running) > 7 {
		return
	}
	forks, err := p.host.Fork(p.t.Context(), m.Sequence, 1+p.rng.IntN(2))
	if p.refused(err) {
		return
	}
	for _, s := range forks {
		p.running = append(p.running,
			&member{&history{Sequence: s, ask: m.ask, from: m.from, rows: slices.Clone(m.rows)}})
	}
}

// draft appends tokens, computes them, commits some and takes the others back.
func (p *player) draft(m *member) {
	if !m.idle() || len(m.Tokens) > 60 {
		return
	}
	tokens := []messages.Token{p.token(m)}
	for range 1 + p.rng.IntN(5) {
		tokens = append(tokens, messages.Token(p.rng.IntN(p.f.Vocab)))
	}
	errs, err := p.host.Append(p.t.Context(), []*runner.Sequence{m.Sequence},
		[][]messages.Token{tokens})
	if p.refused(err) || p.refused(errs[0]) {
		if err != nil || !errors.Is(errs[0], messages.ErrOutOfPages) {
			p.drop(m)
		}
		return
	}
	m.AllLogits = true
	before, accepted := m.Computed(), 1+p.rng.IntN(len(tokens))
	if p.refused(p.host.ComputeOnly(p.t.Context(), m.Sequence)) {
		p.drop(m)
		return
	}
	rows := slices.Clone(m.Logits)
	errs, err = p.host.Commit(p.t.Context(), []*runner.Sequence{m.Sequence}, []int{before + accepted})
	if p.refused(err) || p.refused(errs[0]) {
		p.drop(m)
		return
	}
	if n := len(tokens) - accepted; n > 0 &&
		p.refused(p.host.RewindOne(p.t.Context(), m.Sequence, n)) {
		p.drop(m)
		return
	}
	m.rows = append(m.rows, rows[:accepted]...)
	m.Logits = rows[accepted-1 : accepted]
}

// release checks and ends a sequence, also one whose prompt is not computed.
func (p *player) release(m *member) {
	p.compare(m)
	p.drop(m)
}

func (p *player) preempt(m *member) {
	q := m.ask
	q.Tokens = slices.Clone(m.Tokens)
	p.release(m)
	p.take(q)
}

// drop ends a sequence that may be lost.
func (p *player) drop(m *member) {
	p.refused(p.host.Release(p.t.Context(), m.Sequence))
	p.running = slices.DeleteFunc(p.running, func(r *member) bool { return r == m })
}

// compare compares what was computed with the sequence alone.
func (p *player) compare(m *member) {
	if len(m.rows) == 0 {
		return
	}
	if !p.tolerant {
		m.check(p.t, p.a, "in a random schedule")
		return
	}
	q := m.ask
	q.Tokens = m.Tokens
	for i, row := range p.a.logits(p.t, q)[m.from : m.from+len(m.rows)] {
		if _, other := differs(row, m.rows[i]); other {
			p.wrong = true
		}
	}
}

// disturb does something to the engine.
func (p *player) disturb() {
	e, ctx := p.host.Engine, p.t.Context()
	pools := e.Pools()
	var err error
	switch p.rng.IntN(5) {
	case 0:
		err = e.Reset(ctx)
	case 1:
		_, err = e.Invalidate(ctx, messages.Selector{Salt: "s"})
	case 2:
		if len(pools) == 2 && !p.f.Encodes() {
			share := 0.3 + 0.4*p.rng.Float64()
			_, err = e.Rebalance(ctx, map[string]float64{pools[0].Name: share, pools[1].Name: 1 - share})
		}
	case 3:
		if p.points != nil {
			err = p.points.Arm([]string{"coordinator", "tree", "offloader"}[p.rng.IntN(3)])
		}
	case 4:
		c := p.f.Cases[p.rng.IntN(len(p.f.Cases))]
		_, err = e.Prefetch(ctx, messages.Prefix{Tokens: c.Tokens, Encoder: c.Encoder})
	}
	p.refused(err)
}
