package serve_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// list is a source of prepared requests.
type list struct {
	left []*serve.Request
	done []*serve.Request
}

func (l *list) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if len(l.left) == 0 || load == serve.Working && l.left[0].Arrival > now {
		return nil, nil
	}
	r := l.left[0]
	l.left = l.left[1:]
	return r, nil
}

func (l *list) Done(r *serve.Request) error {
	l.done = append(l.done, r)
	return nil
}

func request(number, prompt, answer int, arrival time.Duration) *serve.Request {
	r := &serve.Request{
		Number: number, Prompt: prompt, Known: prompt, Answer: answer, Arrival: arrival,
		Sample: func(i int) messages.Token { return messages.Token(1000000 + number*1000 + i) },
	}
	for i := range prompt {
		r.Tokens = append(r.Tokens, messages.Token(i))
	}
	return r
}

// open makes a server over 64-token pages of the given number.
func open(t *testing.T, pages, maxRunning int, source serve.Source) (*serve.Server, *engine.Rig) {
	return openWith(t, pages, source, func(c *serve.Config) { c.MaxRunning = maxRunning })
}

// openWith makes a server with other settings.
func openWith(
	t *testing.T, pages int, source serve.Source, set func(*serve.Config),
) (*serve.Server, *engine.Rig) {
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	rig, err := engine.Open(engine.Options{
		Model: windows.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 4, DType: windows.FP8,
			MaxSeqLen: 4096},
		Cache: cache, Pages: windows.PageCounts{Primary: pages}, Watch: engine.Watched,
	})
	require.NoError(t, err)
	c := serve.Config{Rig: rig, Name: "host", Model: cost.Llama8B(), GPU: cost.H100(), StepTokens: 16}
	set(&c)
	server, err := serve.New(c, source)
	require.NoError(t, err)
	return server, rig
}

func run(t *testing.T, s *serve.Server, rig *engine.Rig) serve.Totals {
	require.NoError(t, s.Run(t.Context()))
	totals := s.Totals()
	assert.Zero(t, totals.WrongPages, s.Compute().Problems())
	assert.Empty(t, rig.Hazards())
	leaked, err := rig.Shutdown(t.Context())
	require.NoError(t, err)
	assert.Zero(t, leaked)
	return totals
}

func TestOneRequest(t *testing.T) {
	source := &list{left: []*serve.Request{request(1, 30, 5, time.Second)}}
	server, rig := open(t, 20, 4, source)
	totals := run(t, server, rig)
	require.Len(t, source.done, 1)
	r := source.done[0]
	assert.Len(t, r.Tokens, 35)
	assert.Equal(t, messages.Token(1001004), r.Tokens[34])
	assert.GreaterOrEqual(t, r.Outcome.First, time.Second)
	assert.Greater(t, r.Outcome.Done, r.Outcome.First)
	assert.Equal(t, 1, totals.Requests)
	assert.EqualValues(t, 30, totals.ComputedTokens)
	assert.EqualValues(t, 5, totals.AnswerTokens)
	assert.Equal(t, 2+4, totals.Steps,
		"two chunks, the second samples the first token, then one a token")
}

func TestTheSecondRequestReusesTheFirst(t *testing.T) {
	source := &list{left: []*serve.Request{request(1, 32, 2, 0), request(2, 32, 2, time.Hour),
		request(3, 40, 0, 2*time.Hour)}}
	server, rig := open(t, 40, 4, source)
	totals := run(t, server, rig)
	require.Len(t, source.done, 3)
	assert.Zero(t, source.done[0].Outcome.Stored)
	assert.Equal(t, 32, source.done[1].Outcome.Stored, "looked up beyond the rule of the last token")
	assert.Equal(t, 31, source.done[1].Outcome.Reused)
	assert.Equal(t, 32, source.done[2].Outcome.Reused)
	assert.EqualValues(t, 63, totals.ReusedTokens)
	assert.EqualValues(t, 16, totals.VerifiedPages)
	assert.Positive(t, totals.Saved)
}

// Answers that together outgrow the pages make the youngest wait again; all are
// answered in the end, with the same tokens as without pressure.
func TestPreemption(t *testing.T) {
	source := &list{}
	for i := range 4 {
		source.left = append(source.left, request(i, 8, 40, 0))
	}
	server, rig := open(t, 16, 4, source)
	totals := run(t, server, rig)
	assert.Equal(t, 4, totals.Requests)
	assert.Zero(t, totals.GivenUp)
	assert.Positive(t, totals.Preemptions)
	for _, r := range source.done {
		require.Len(t, r.Tokens, 48)
		for i := range 40 {
			assert.Equal(t, r.Sample(i), r.Tokens[8+i])
		}
	}
}

// prefetches notes the first token of each prefix that is prefetched.
type prefetches struct {
	engine.Engine
	noted []messages.Token
}

func (p *prefetches) Prefetch(ctx context.Context, prefix messages.Prefix) (int, error) {
	p.noted = append(p.noted, prefix.Tokens[0])
	return p.Engine.Prefetch(ctx, prefix)
}

// TestPrefetchOfWhatWaits: before each try, so many requests as the server is told to, from the
// last to the first.
func TestPrefetchOfWhatWaits(t *testing.T) {
	source := &list{}
	for k := range 4 {
		r := request(k, 30, 2, 0)
		r.Tokens[0] = messages.Token(k)
		source.left = append(source.left, r)
	}
	var noted prefetches
	server, rig := openWith(t, 8, source,
		func(c *serve.Config) { c.MaxRunning, c.Prefetch = 4, 3 })
	noted.Engine = rig.Engine
	rig.Engine = &noted
	totals := run(t, server, rig)
	assert.Equal(t, 4, totals.Requests)
	// One fits at a time.
	assert.Equal(t, []messages.Token{2, 1, 0, 3, 2, 1}, noted.noted[:6])
	assert.Equal(t, messages.Token(3), noted.noted[len(noted.noted)-1])
}

func TestGivingUp(t *testing.T) {
	source := &list{left: []*serve.Request{request(1, 100, 2, 0), request(2, 8, 100, 0),
		request(3, 8, 3, 0)}}
	server, rig := open(t, 12, 4, source)
	totals := run(t, server, rig)
	assert.Equal(t, 1, totals.Requests)
	assert.Equal(t, 2, totals.GivenUp, "a prompt that never fits, an answer that outgrows the engine")
	assert.Len(t, source.done, 3)
}

// Servers that share too few pages all get through.
func TestServersShareAnEngine(t *testing.T) {
	first := &list{left: []*serve.Request{request(1, 30, 20, 0), request(2, 30, 20, 0)}}
	server, rig := open(t, 14, 2, first)
	second := &list{left: []*serve.Request{request(3, 20, 30, 0), request(4, 20, 30, 0)}}
	other, err := serve.New(serve.Config{
		Rig: rig, Name: "other", Model: cost.Llama8B(), GPU: cost.H100(), MaxRunning: 2, StepTokens: 16,
	}, second)
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- other.Run(t.Context()) }()
	require.NoError(t, server.Run(t.Context()))
	require.NoError(t, <-ended)
	var totals serve.Totals
	totals.Add(server.Totals())
	totals.Add(other.Totals())
	assert.Equal(t, 4, totals.Requests)
	assert.Zero(t, totals.GivenUp)
	assert.Zero(t, totals.WrongPages)
	assert.Zero(t, rig.Running.Load())
}

// guest is another server's sequence, which goes as soon as an append finds no
// page.
type guest struct {
	engine.Engine
	rig *engine.Rig
	id  messages.SequenceID
}

func (e *guest) Append(
	ctx context.Context, s []messages.AppendStep,
) ([]messages.StepResult, error) {
	out, err := e.Engine.Append(ctx, s)
	if err == nil && out[0].Err != nil && e.id != 0 {
		_, err = e.Engine.Release(ctx, []messages.ReleaseStep{{Sequence: e.id}})
		e.id = 0
		e.rig.Running.Add(-1)
	}
	return out, err
}

// A sequence that others kept from a page has not outgrown the engine when they
// are gone by the time it is looked at.
func TestOthersLeaveDuringAStall(t *testing.T) {
	source := &list{left: []*serve.Request{request(1, 20, 20, 0)}}
	server, rig := open(t, 14, 2, source)
	other, err := rig.AdmitBatch(t.Context(),
		[]messages.AdmitRequest{{Tokens: request(2, 24, 0, 0).Tokens}})
	require.NoError(t, err)
	require.NoError(t, other[0].Err)
	rig.Running.Add(1)
	rig.Engine = &guest{Engine: rig.Engine, rig: rig, id: other[0].Sequence}
	totals := run(t, server, rig)
	assert.Equal(t, 1, totals.Requests)
	assert.Zero(t, totals.GivenUp)
	assert.Zero(t, rig.Running.Load())
}

// forgetful loses a sequence at its n-th commit, as an engine does whose actor
// went down.
type forgetful struct {
	engine.Engine
	left int
}

func (e *forgetful) Append(
	ctx context.Context, s []messages.AppendStep,
) ([]messages.StepResult, error) {
	out, err := e.Engine.Append(ctx, s)
	if e.left--; e.left == 0 {
		if _, err := e.Engine.Release(ctx,
			[]messages.ReleaseStep{{Sequence: s[0].Sequence}}); err != nil {
			return nil, err
		}
		out[0] = messages.StepResult{Err: messages.ErrSequenceLost}
	}
	return out, err
}

func TestLostSequencesAreAdmittedAgain(t *testing.T) {
	source := &list{left: []*serve.Request{request(1, 20, 12, 0), request(2, 24, 12, 0)}}
	server, rig := open(t, 40, 4, source)
	rig.Engine = &forgetful{Engine: rig.Engine, left: 5}
	totals := run(t, server, rig)
	assert.Equal(t, 2, totals.Requests)
	assert.Equal(t, 1, totals.Lost)
	for _, r := range source.done {
		require.Len(t, r.Tokens, r.Prompt+12)
		assert.Equal(t, r.Sample(11), r.Tokens[r.Prompt+11])
	}
}
