package survival_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// Two worlds get the same requests at the same moments. They differ in the
// tokens of one tenant only: in the first it has the very prompts of the other,
// in the second they are renamed, one to one, so that it reuses as much of its
// own. Every answer to everybody must be the same but for the new names: what
// one tenant is told can then say nothing about what the other's prompts hold.

// tenancy is who shares an engine; the second is the one whose tokens differ.
type tenancy [2]messages.Namespace

var tenancies = map[string]tenancy{
	"two salts":             {{Salt: "a"}, {Salt: "b"}},
	"a salt and none":       {{Salt: "a"}, {}},
	"none and a salt":       {{}, {Salt: "b"}},
	"an adapter of no name": {{}, {HasLoRA: true}},
	"names that run together": {{Salt: "ab", LoRA: "c", HasLoRA: true},
		{Salt: "a", LoRA: "bc", HasLoRA: true}},
	"a salt as an adapter": {{Salt: "x"}, {LoRA: "x", HasLoRA: true}},
	"two adapters of a salt": {{Salt: "s", LoRA: "1", HasLoRA: true},
		{Salt: "s", LoRA: "2", HasLoRA: true}},
}

// renamed is added to every token, and to the hashes, that are renamed.
const renamed messages.Token = 1 << 20

// neighbour is a running sequence.
type neighbour struct {
	id       messages.SequenceID
	tenant   int
	length   int
	prompt   int
	computed int
}

// neighbourhood is one of the worlds.
type neighbourhood struct {
	*rig
	tenancy
	random  *rand.Rand
	rename  messages.Token // for the second tenant
	now     time.Duration
	running []neighbour
	pins    []messages.PinID
	answers []string // of every request, in a form that shows no names
	hashes  map[kvevents.Hash]int
	hashOf  []kvevents.Hash
	own     map[kvevents.Hash]bool // of blocks whose tokens are not renamed
}

func newNeighbourhood(
	t *testing.T, who tenancy, seed uint64, rename messages.Token,
) *neighbourhood {
	random := rand.New(rand.NewPCG(seed, 7))
	w := &neighbourhood{tenancy: who, random: random, rename: rename, hashes: map[kvevents.Hash]int{},
		own: map[kvevents.Hash]bool{}}
	s := setup{
		windows: [][]int{{long}, {long, 3 * tpb}}[random.IntN(2)],
		clock:   func() time.Duration { return w.now },
		change: func(c *windows.Config) {
			c.EventBufferMaxSize = 1 << 16
			c.CopyOnPartialReuse = random.IntN(4) > 0
			c.EnablePartialReuse = random.IntN(8) > 0
			if random.IntN(3) == 0 {
				c.SaltQuotas, c.OtherSaltsQuota = map[string]float64{"a": 0.5, "b": 0.3, "s": 0.5}, 0.3
			}
		},
	}
	for range s.windows {
		s.pages = append(s.pages, windows.PageCounts{Primary: 14, Secondary: random.IntN(2) * 10})
	}
	w.rig = newRig(t, s, enginetest.WithFirstGeneration(0))
	return w
}

// tokens names a prompt of a tenant: one of three families, which leave their
// common beginning somewhere.
func (w *neighbourhood) tokens(tenant int) []messages.Token {
	prefix, n, cut := w.random.IntN(3), 1+w.random.IntN(7*tpb), w.random.IntN(4*tpb)
	list := run(0, n)
	for i := range list {
		if i >= cut {
			list[i] += messages.Token(prefix * 100)
		}
	}
	return w.named(tenant, list)
}

func (w *neighbourhood) named(tenant int, list []messages.Token) []messages.Token {
	if tenant == 1 {
		for i := range list {
			list[i] += w.rename
		}
	}
	return list
}

// items covers some of a prompt at times.
func (w *neighbourhood) items(tenant, prompt int) []messages.MultimodalItem {
	if w.random.IntN(3) > 0 {
		return nil
	}
	start := w.random.IntN(prompt)
	item := messages.MultimodalItem{Start: start, Length: 1 + w.random.IntN(prompt-start)}
	item.Hash[0] = byte(w.random.IntN(2))
	if tenant == 1 && w.rename > 0 {
		item.Hash[31] = 0xbb
	}
	return []messages.MultimodalItem{item}
}

func (w *neighbourhood) prefix(tenant int) messages.Prefix {
	tokens := w.tokens(tenant)
	return messages.Prefix{Namespace: w.tenancy[tenant], Tokens: tokens,
		Multimodal: w.items(tenant, len(tokens))}
}

func (w *neighbourhood) request(tenant int) messages.AdmitRequest {
	p := w.prefix(tenant)
	q := messages.AdmitRequest{Namespace: p.Namespace, Tokens: p.Tokens, Multimodal: p.Multimodal,
		Session: fmt.Sprint("session", tenant)}
	switch w.random.IntN(4) {
	case 0:
		q.ChunkTokens = tpb
	case 1:
		q.Retention = &messages.Retention{Ranges: []messages.RetentionRange{{
			Start: w.random.IntN(8), End: messages.EndOfPrompt,
			Priority: messages.Priority(20 * w.random.IntN(6)),
			Duration: time.Duration(w.random.IntN(3)) * time.Second,
		}}}
	}
	return q
}

// note writes an answer down. What a host is told is all in exported fields. It waits until
// the engine is idle, since pages are copied ahead only then: the next request must find the
// same in both worlds.
func (w *neighbourhood) note(what string, answer any, err error) {
	synctest.Wait()
	text, problem := json.Marshal(answer)
	require.NoError(w.t, problem)
	w.answers = append(w.answers, fmt.Sprintf("%s: %s %v", what, text, err))
}

// step does one request of any kind, and reads what everybody can see.
func (w *neighbourhood) step() {
	tenant := w.random.IntN(2)
	w.now += time.Duration(w.random.IntN(400)) * time.Millisecond
	switch w.random.IntN(16) {
	case 0, 1, 2, 3, 4:
		w.admit()
	case 5, 6, 7:
		w.extend()
	case 8, 9, 10:
		w.releaseSome()
	case 11, 12:
		found, err := w.Lookup(ctx, w.prefix(tenant))
		w.note("lookup", found, err)
	case 13:
		w.pin(tenant)
	case 14:
		n, err := w.Prefetch(ctx, w.prefix(tenant))
		w.note("prefetch", n, err)
	case 15:
		w.invalidate(tenant)
	}
	w.look()
}

func (w *neighbourhood) admit() {
	list := make([]messages.AdmitRequest, 1+w.random.IntN(2))
	who := make([]int, len(list))
	for i := range list {
		who[i] = w.random.IntN(2)
		list[i] = w.request(who[i])
	}
	results, err := w.AdmitBatch(ctx, list)
	w.note("admit", results, err)
	for i, a := range results {
		if a.Err == nil {
			n := len(list[i].Tokens)
			w.running = append(w.running, neighbour{a.Sequence, who[i], n, n, a.ReusedTokens})
		}
	}
}

// extend computes the prompt, or a token more.
func (w *neighbourhood) extend() {
	if len(w.running) == 0 {
		return
	}
	s := &w.running[w.random.IntN(len(w.running))]
	if s.computed < s.prompt {
		for _, n := range []int{s.prompt, s.computed/tpb*tpb + tpb} {
			results, err := w.Commit(ctx, []messages.CommitStep{{Sequence: s.id, Computed: n}})
			w.note("commit", results, err)
			if results[0].Err == nil {
				s.computed = n
				return
			}
		}
		return
	}
	added := w.named(s.tenant, run(500, 1+w.random.IntN(3)))
	results, err := w.Append(ctx,
		[]messages.AppendStep{{Sequence: s.id, Tokens: added, Computed: s.length + len(added)}})
	w.note("append", results, err)
	if results[0].Err == nil {
		s.length += len(added)
	}
}

func (w *neighbourhood) releaseSome() {
	if len(w.running) == 0 {
		return
	}
	i := w.random.IntN(len(w.running))
	results, err := w.Release(ctx,
		[]messages.ReleaseStep{{Sequence: w.running[i].id, Discard: w.random.IntN(5) == 0}})
	w.note("release", results, err)
	w.running = slices.Delete(w.running, i, i+1)
}

func (w *neighbourhood) pin(tenant int) {
	if len(w.pins) > 1 {
		w.note("unpin", nil, w.Unpin(ctx, w.pins[0]))
		w.pins = w.pins[1:]
		return
	}
	p, err := w.Pin(ctx, w.prefix(tenant))
	w.note("pin", p, err)
	if err == nil && p.Tokens > 0 {
		w.pins = append(w.pins, p.Pin)
	}
}

func (w *neighbourhood) invalidate(tenant int) {
	var s messages.Selector
	switch w.random.IntN(4) {
	case 0:
		s.Session = fmt.Sprint("session", tenant)
	case 1:
		s.Salt = w.tenancy[tenant].Salt
	default:
		p := w.prefix(tenant)
		s.Prefix = &p
	}
	n, err := w.Invalidate(ctx, s)
	w.note("invalidate", n, err)
}

// look reads everything that shows the state.
func (w *neighbourhood) look() {
	stats, err := w.Stats(ctx)
	w.note("stats", stats, err)
	batch, err := w.Events(ctx)
	for i := range batch.Events {
		w.unname(&batch.Events[i])
	}
	batch.Engine = "" // no two engines have one
	w.note("events", batch, err)
	contents, err := w.Contents(ctx)
	for i := range contents {
		c := &contents[i]
		c.Tokens, _ = plain(c.Tokens)
		for k := range c.Covers {
			c.Covers[k].Hash[31] = 0
		}
	}
	w.note("contents", contents, err)
	for _, s := range w.running {
		tables, err := w.TablesOf(ctx, s.id)
		w.note("tables", tables, err)
	}
}

// plain takes the renaming back and tells whether there was any.
func plain(tokens []messages.Token) ([]messages.Token, bool) {
	if len(tokens) == 0 || tokens[0] < renamed {
		return tokens, false
	}
	tokens = slices.Clone(tokens)
	for i := range tokens {
		tokens[i] -= renamed
	}
	return tokens, true
}

// unname takes names out of an event: hashes become the order of their first
// appearance.
func (w *neighbourhood) unname(e *kvevents.Event) {
	for i := range e.Blocks {
		b := &e.Blocks[i]
		tokens, was := plain(b.Tokens)
		b.Tokens = tokens
		if !was {
			w.own[b.Hash] = true
		}
		w.number(&b.Hash)
	}
	for i := range e.Hashes {
		w.number(&e.Hashes[i])
	}
	w.number(&e.Parent)
	w.number(&e.Hash)
}

func (w *neighbourhood) number(h *kvevents.Hash) {
	if *h == (kvevents.Hash{}) {
		return
	}
	n, known := w.hashes[*h]
	if !known {
		n = len(w.hashOf)
		w.hashes[*h] = n
		w.hashOf = append(w.hashOf, *h)
	}
	*h = kvevents.Hash{1, byte(n >> 16), byte(n >> 8), byte(n)}
}

func (w *neighbourhood) end() {
	for _, s := range w.running {
		w.release(s.id)
	}
	w.close()
}

func TestNoAnswerDependsOnAnotherTenantsTokens(t *testing.T) {
	for name, who := range tenancies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(4) {
					compareWorlds(t, who, seed)
				}
			})
		})
	}
}

// compareWorlds compares each answer in a world of tenants with equal tokens with that in one
// where the second tenant's tokens are others.
func compareWorlds(t *testing.T, who tenancy, seed uint64) {
	t.Helper()
	same, other := newNeighbourhood(t, who, seed, 0), newNeighbourhood(t, who, seed, renamed)
	for i := 0; i < 150 && !t.Failed(); i++ {
		from := len(same.answers)
		same.step()
		other.step()
		require.Equal(t, same.answers[from:], other.answers[from:], "seed %d, step %d", seed, i)
	}
	compareHashes(t, same, other)
	same.end()
	other.end()
}

// compareHashes: the first tenant's blocks have the same hashes in both worlds,
// though there are equal tokens of the other in one; the second tenant's differ.
func compareHashes(t *testing.T, same, other *neighbourhood) {
	t.Helper()
	require.Len(t, other.hashOf, len(same.hashOf))
	mine := 0
	for n, h := range other.hashOf {
		if other.own[h] {
			mine++
			assert.Equal(t, same.hashOf[n], h)
		}
	}
	assert.NotZero(t, mine)
	assert.Less(t, mine, len(other.hashOf))
}

// With the second tenant's prompts equal to the first's, nothing of one is found
// by the other: neither a match nor a part of one, a pin, a prefetch or a block
// to forget.
func TestEqualPromptsOfTenantsAreStrangers(t *testing.T) {
	for name, who := range tenancies {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 16, Secondary: 16}}})
			q := messages.AdmitRequest{Namespace: who[0], Tokens: run(0, 5*tpb+2), Session: "mine"}
			a := r.admit(q)
			r.compute(a.Sequence, len(q.Tokens))
			r.release(a.Sequence)
			p := messages.Prefix{Namespace: who[1], Tokens: q.Tokens}
			found, err := r.Lookup(ctx, p)
			require.NoError(t, err)
			assert.Zero(t, found)
			pin, err := r.Pin(ctx, p)
			require.NoError(t, err)
			assert.Zero(t, pin.Tokens)
			n, err := r.Invalidate(ctx, messages.Selector{Prefix: &p})
			require.NoError(t, err)
			assert.Zero(t, n)
			q.Namespace = who[1]
			b := r.admit(q)
			assert.Zero(t, b.ReusedTokens)
			assert.Equal(t, messages.ReasonCold, b.MissReason)
			r.release(b.Sequence)
			p.Namespace = who[0]
			found, err = r.Lookup(ctx, p)
			require.NoError(t, err)
			assert.Equal(t, 5*tpb+1, found.MatchedTokens)
			r.close()
		})
	}
}
