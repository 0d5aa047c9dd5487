package actors

import (
	"context"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Validate checks the values of an admission alone, nothing that depends on
// what the engine holds.
func (e *Engine) Validate(r messages.AdmitRequest) error { return e.validate.Validate(&r) }

// Admit takes a sequence in: it finds the longest reusable prefix of the
// prompt, claims it, and takes pages for all other tokens. The cost is linear
// in the prompt's tokens, a memory comparison's constant.
func (e *Engine) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	results, err := e.AdmitBatch(ctx, []messages.AdmitRequest{r})
	if err != nil {
		return messages.Admitted{}, err
	}
	return results[0], results[0].Err
}

// AdmitBatch admits several sequences; all matches are claimed before any page
// is taken. Each result has its own Err.
func (e *Engine) AdmitBatch(ctx context.Context, requests []messages.AdmitRequest) ([]messages.Admitted, error) {
	fetchBefore(ctx, e, requests)
	m := &messages.Admit{Requests: requests}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// Commit tells that tokens of sequences are computed: blocks that this
// completes may be matched by others at once.
func (e *Engine) Commit(ctx context.Context, steps []messages.CommitStep) ([]messages.StepResult, error) {
	m := &messages.Commit{Steps: steps}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// Append adds sampled tokens to many sequences, one engine step. A sequence
// that finds no page is left as it was; the others go on.
func (e *Engine) Append(ctx context.Context, steps []messages.AppendStep) ([]messages.StepResult, error) {
	m := &messages.Append{Steps: steps}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// Release ends sequences: what they computed stays reusable until it is
// evicted.
func (e *Engine) Release(ctx context.Context, steps []messages.ReleaseStep) ([]messages.StepResult, error) {
	m := &messages.Release{Steps: steps}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// RewindOne is Rewind for one sequence.
func (e *Engine) RewindOne(ctx context.Context, s messages.SequenceID, tokens int) error {
	results, err := e.Rewind(ctx, []messages.RewindStep{{Sequence: s, Tokens: tokens}})
	if err != nil {
		return err
	}
	return results[0].Err
}

// Rewind drops the last tokens of sequences, such as rejected drafts. Each result
// has its own Err.
func (e *Engine) Rewind(ctx context.Context, steps []messages.RewindStep) ([]messages.StepResult, error) {
	m := &messages.Rewind{Steps: steps}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// ForkOne is Fork for one sequence: it makes n new ones.
func (e *Engine) ForkOne(ctx context.Context, s messages.SequenceID, n int) ([]messages.SequenceID, error) {
	results, err := e.Fork(ctx, []messages.ForkStep{{Sequence: s, Count: n}})
	if err != nil {
		return nil, err
	}
	return results[0].Forks, results[0].Err
}

// Fork makes new sequences that share all pages of others until they write. Each
// result has its own Err.
func (e *Engine) Fork(ctx context.Context, steps []messages.ForkStep) ([]messages.ForkResult, error) {
	m := &messages.Fork{Steps: steps}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// TablesOf is Tables for one sequence.
func (e *Engine) TablesOf(ctx context.Context, s messages.SequenceID) (messages.Tables, error) {
	results, err := e.Tables(ctx, []messages.SequenceID{s})
	if err != nil {
		return nil, err
	}
	return results[0].Tables, results[0].Err
}

// Tables reads the page tables of sequences. Each result has its own Err.
func (e *Engine) Tables(ctx context.Context, sequences []messages.SequenceID) ([]messages.TablesResult, error) {
	m := &messages.ReadTables{Sequences: sequences}
	if err := e.Do(ctx, m); err != nil {
		return nil, err
	}
	return m.Results, m.Err
}

// Lookup tells what an admission of the same prompt would reuse now.
func (e *Engine) Lookup(ctx context.Context, p messages.Prefix) (messages.Found, error) {
	m := &messages.Lookup{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Found, err
}

// Pin protects the stored blocks of a prefix from eviction, in every pool.
func (e *Engine) Pin(ctx context.Context, p messages.Prefix) (messages.Pinned, error) {
	m := &messages.PinPrefix{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Pinned, err
}

// Unpin ends a pin.
func (e *Engine) Unpin(ctx context.Context, pin messages.PinID) error {
	m := &messages.UnpinPrefix{Pin: pin}
	return first(e.Do(ctx, m), &m.Err)
}

// Invalidate forgets what a selector names and tells how many blocks it were.
func (e *Engine) Invalidate(ctx context.Context, s messages.Selector) (int, error) {
	m := &messages.Invalidate{Selector: s}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Blocks, err
}

// Prefetch brings what host memory holds of a prefix to the device, all or
// nothing, and tells how many pages it were.
func (e *Engine) Prefetch(ctx context.Context, p messages.Prefix) (int, error) {
	m := &messages.Prefetch{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.OnboardedPages, err
}

// Reset forgets everything that no running sequence holds.
func (e *Engine) Reset(ctx context.Context) error {
	m := &messages.Reset{}
	return first(e.Do(ctx, m), &m.Err)
}

// Rebalance moves device memory between pools, by fractions or by demand.
func (e *Engine) Rebalance(ctx context.Context, fractions map[string]float64) (messages.Rebalanced, error) {
	m := &messages.Rebalance{Fractions: fractions}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Rebalanced, err
}

// Resize gives each pool a number of device pages, by PoolID. The pools grow and
// shrink in place: what running sequences and pins hold survives, and contents are
// evicted as usual only where a pool shrinks below them. The answer lists held
// pages that got other numbers. It is refused (ErrOutOfPages) if a pool would have
// fewer pages than are held or reserved.
func (e *Engine) Resize(ctx context.Context, pages []int) (messages.Rebalanced, error) {
	if pages == nil {
		pages = []int{}
	}
	m := &messages.Rebalance{Pages: pages}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Rebalanced, err
}

// Stats reads counters and page states.
func (e *Engine) Stats(ctx context.Context) (messages.Stats, error) {
	m := &messages.ReadStats{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Stats, err
}

// Events takes the events since the last call.
func (e *Engine) Events(ctx context.Context) (messages.EventBatch, error) {
	m := &messages.ReadEvents{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// OpenReader adds a reader of events, who takes them from now on with EventsOf and
// SnapshotOf: each reader gets all events, at its own pace. Events and Snapshot are
// those of the zero ReaderID.
func (e *Engine) OpenReader(ctx context.Context) (messages.ReaderID, error) {
	m := &messages.OpenReader{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Reader, err
}

// CloseReader ends a reader of events.
func (e *Engine) CloseReader(ctx context.Context, id messages.ReaderID) error {
	m := &messages.CloseReader{Reader: id}
	return first(e.Do(ctx, m), &m.Err)
}

// EventsOf takes the events since the reader's last call.
func (e *Engine) EventsOf(ctx context.Context, id messages.ReaderID) (messages.EventBatch, error) {
	m := &messages.ReadEvents{Reader: id}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// SnapshotOf is Snapshot for a reader.
func (e *Engine) SnapshotOf(ctx context.Context, id messages.ReaderID) (messages.EventBatch, error) {
	m := &messages.ReadSnapshot{Reader: id}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// Snapshot reads every key of the tree, to start a mirror; later Events go on
// from there.
func (e *Engine) Snapshot(ctx context.Context) (messages.EventBatch, error) {
	m := &messages.ReadSnapshot{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// Content is one stored block, as Contents lists it, and where each pool keeps it.
type Content = protocol.Content

// Contents lists every stored block with its pages, parents before children, so
// that a test of a host can check the bytes.
func (e *Engine) Contents(ctx context.Context) ([]Content, error) {
	m := &protocol.ReadContents{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Blocks, err
}

// Check runs every invariant of every actor and joins all that is wrong.
func (e *Engine) Check(ctx context.Context) error {
	m := &messages.Check{}
	return first(e.Do(ctx, m), &m.Err)
}

// SetScales sets what keys and values of layers with 8-bit elements were
// divided by, all or none. Scales that were never set are 1. It touches no page:
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

// first is the error of the call, else the refusal of the request.
func first(err error, refusal *error) error {
	if err != nil {
		return err
	}
	return *refusal
}
