package actors

import (
	"context"
	"errors"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Validate checks the values of an admission alone, nothing that depends on what the
// engine holds: tokens, items, ranges of retention, beams and chunks. Its errors are
// ErrBadRequest and ErrNotSupported, and name the field. It compares no length with
// max_seq_len: Admit does (ErrTooLong), behind all checks of values.
func (e *Engine) Validate(r messages.AdmitRequest) error { return e.validate.Validate(&r) }

// Admit starts a sequence: it finds the longest reusable prefix of the prompt, claims
// its pages, and takes pages for all other tokens. ErrOutOfPages names the pool that
// lacks pages; nothing has changed then. The cost is linear in the prompt's tokens, with
// the constant of a memory comparison, and a constant a page.
func (e *Engine) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	results, err := e.AdmitBatch(ctx, []messages.AdmitRequest{r})
	if err != nil {
		return messages.Admitted{}, err
	}
	return results[0], results[0].Err
}

// AdmitBatch admits several sequences. All matches are claimed before any page is
// taken, so it is not first in, first out: see messages.Admit. Each result has its own
// Err; the error of the call says that no request was served.
func (e *Engine) AdmitBatch(
	ctx context.Context, requests []messages.AdmitRequest,
) ([]messages.Admitted, error) {
	fetchBefore(ctx, e, requests)
	m := &messages.Admit{Requests: requests}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// Commit says that the first Computed tokens of sequences are in their pages, or will be
// when After has passed. Blocks that this completes may be matched by others at once. A
// commit of a chunk takes the pages of the next chunk, which are reserved: it never lacks
// pages. Each result has its own Err.
func (e *Engine) Commit(
	ctx context.Context, steps []messages.CommitStep,
) ([]messages.StepResult, error) {
	m := &messages.Commit{Steps: steps}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// Append adds sampled tokens to sequences, one step of a batch. A sequence that finds no
// page is left as it was, with ErrOutOfPages in its result; the others are served. Only
// the pools that pages are taken from get a message.
func (e *Engine) Append(
	ctx context.Context, steps []messages.AppendStep,
) ([]messages.StepResult, error) {
	m := &messages.Append{Steps: steps}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// Release ends sequences. What they have committed stays reusable until it is evicted; their other
// pages are free at once, and who takes one waits for After. Also a sequence that is lost
// (ErrSequenceLost) is released. Each result has its own Err.
func (e *Engine) Release(
	ctx context.Context, steps []messages.ReleaseStep,
) ([]messages.StepResult, error) {
	m := &messages.Release{Steps: steps}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// RewindOne is Rewind for one sequence.
func (e *Engine) RewindOne(ctx context.Context, s messages.SequenceID, tokens int) error {
	results, err := e.Rewind(ctx, []messages.RewindStep{{Sequence: s, Tokens: tokens}})
	if err != nil {
		return err
	}
	return results[0].Err
}

// Rewind drops the last tokens of sequences, such as rejected drafts. Tokens of the
// prompt cannot be dropped (ErrBadRequest), nor tokens that would bring back blocks which
// a window has passed, nor those of beams (ErrNotSupported). Each result has its own Err.
func (e *Engine) Rewind(
	ctx context.Context, steps []messages.RewindStep,
) ([]messages.StepResult, error) {
	m := &messages.Rewind{Steps: steps}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// ForkOne is Fork for one sequence: it makes n new ones.
func (e *Engine) ForkOne(
	ctx context.Context, s messages.SequenceID, n int,
) ([]messages.SequenceID, error) {
	results, err := e.Fork(ctx, []messages.ForkStep{{Sequence: s, Count: n}})
	if err != nil {
		return nil, err
	}
	return results[0].Forks, results[0].Err
}

// Fork makes new sequences that share all pages of others until they write. The prompt must be
// committed (ErrBadRequest), and the beam width 1 (ErrNotSupported). Each result has its own Err.
func (e *Engine) Fork(
	ctx context.Context, steps []messages.ForkStep,
) ([]messages.ForkResult, error) {
	m := &messages.Fork{Steps: steps}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// TablesOf is Tables for one sequence.
func (e *Engine) TablesOf(ctx context.Context, s messages.SequenceID) (messages.Tables, error) {
	results, err := e.Tables(ctx, []messages.SequenceID{s})
	if err != nil {
		return nil, err
	}
	return results[0].Tables, results[0].Err
}

// Tables reads the page tables of sequences, as [pool][beam][block]. A host that follows
// the Placed pages of its steps needs it only after a rebalance. Each result has its own
// Err.
func (e *Engine) Tables(
	ctx context.Context, sequences []messages.SequenceID,
) ([]messages.TablesResult, error) {
	m := &messages.ReadTables{Sequences: sequences}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Results, err
}

// Lookup returns how many tokens an admission of the same prompt would reuse now, and on
// which tier they are. It changes nothing, not even when a block was last used.
func (e *Engine) Lookup(ctx context.Context, p messages.Prefix) (messages.Found, error) {
	m := &messages.Lookup{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Found, err
}

// Pin protects the stored whole blocks of a prefix from eviction, in every pool, on the
// tier where each is. It returns the number of tokens that are protected, which may be 0.
// Invalidate and Reset forget pinned blocks like others.
func (e *Engine) Pin(ctx context.Context, p messages.Prefix) (messages.Pinned, error) {
	m := &messages.PinPrefix{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Pinned, err
}

// Unpin ends a pin, also if an actor fails over it. ErrUnknownPin: it has ended before, or never
// was.
func (e *Engine) Unpin(ctx context.Context, pin messages.PinID) error {
	m := &messages.UnpinPrefix{Pin: pin}
	err := first(e.Do(ctx, m), &m.Err)
	// A host that took the error for the end would leave the pages pinned. The engine ends after
	// too many failures.
	for errors.Is(err, messages.ErrInternal) {
		err = first(e.Do(ctx, m), &m.Err)
	}
	return err
}

// Invalidate forgets what a selector selects and returns the number of blocks. Running sequences
// that it selects keep their pages, and store nothing from now on.
func (e *Engine) Invalidate(ctx context.Context, s messages.Selector) (int, error) {
	m := &messages.Invalidate{Selector: s}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Blocks, err
}

// Prefetch copies what host memory holds of a prefix to the device, all or nothing
// (ErrOutOfPages), and returns the number of pages, over all pools. It does not wait for
// the copies: an admission that reuses the blocks gets their tickets.
func (e *Engine) Prefetch(ctx context.Context, p messages.Prefix) (int, error) {
	m := &messages.Prefetch{Prefix: p}
	err := first(e.Do(ctx, m), &m.Err)
	return m.OnboardedPages, err
}

// Reset forgets every block that no running sequence holds, also pinned ones.
func (e *Engine) Reset(ctx context.Context) error {
	m := &messages.Reset{}
	return first(e.Do(ctx, m), &m.Err)
}

// ResetRunning forgets every block. Running sequences keep their pages, and store nothing from
// now on.
func (e *Engine) ResetRunning(ctx context.Context) error {
	m := &messages.Reset{Running: true}
	return first(e.Do(ctx, m), &m.Err)
}

// SetWeights begins an epoch of the model's weights: see messages.SetWeights.
func (e *Engine) SetWeights(ctx context.Context, epoch string) error {
	m := &messages.SetWeights{Epoch: epoch}
	return first(e.Do(ctx, m), &m.Err)
}

// Rebalance moves device memory between pools: to fractions by the names of the pools, which add up
// to 1, or with nil by demand. It waits for the device, so it takes as long as the kernels and
// copies that use the pages. The answer lists held pages that got other numbers, with an error,
// too. ErrOutOfPages: a pool would have fewer pages than are held or reserved.
func (e *Engine) Rebalance(
	ctx context.Context, fractions map[string]float64,
) (messages.Rebalanced, error) {
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

// Stats reads counters and page counts. Counters count from the start of the engine.
func (e *Engine) Stats(ctx context.Context) (inspect.Stats, error) {
	m := &inspect.ReadStats{}
	err := first(e.Do(ctx, m), &m.Err)
	if err != nil {
		return m.Stats, err
	}
	m.Stats.Calls.InFlight, m.Stats.Calls.Blocked = e.gate.counts()
	m.Stats.Calls.RefusedCopies = e.streams.refused.Load()
	m.Stats.Memory = e.memory
	m.Stats.Memory.DeviceBytes = 0
	for p := range m.Stats.Pools {
		m.Stats.Memory.DeviceBytes += int64(
			m.Stats.Pools[p].Primary.Total) * e.pools[p].PageBytes * int64(e.memory.Ranks)
	}
	if e.store != nil {
		store := e.store.Stats()
		m.Stats.Store = &store
	}
	return m.Stats, nil
}

// Events takes the events since the last call of the zero reader. Lost counts those that
// the buffer had no room for; a snapshot brings a mirror up to date then.
func (e *Engine) Events(ctx context.Context) (kvevents.EventBatch, error) {
	return e.EventsOf(ctx, events.FirstReader)
}

// OpenReader adds a reader of events, who takes them from now on with EventsOf and
// SnapshotOf: each reader gets all events, at its own pace. Events and Snapshot are
// those of the zero ReaderID.
func (e *Engine) OpenReader(ctx context.Context) (kvevents.ReaderID, error) {
	m := &kvevents.OpenReader{}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Reader, err
}

// CloseReader ends a reader of events. One that is not read and not closed keeps the
// buffer full, which costs memory and no other reader anything.
func (e *Engine) CloseReader(ctx context.Context, id kvevents.ReaderID) error {
	m := &kvevents.CloseReader{Reader: id}
	return first(e.Do(ctx, m), &m.Err)
}

// EventsOf takes the events since the reader's last call.
func (e *Engine) EventsOf(ctx context.Context, id kvevents.ReaderID) (kvevents.EventBatch, error) {
	m := &kvevents.ReadEvents{Reader: id}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// SnapshotOf is Snapshot for a reader.
func (e *Engine) SnapshotOf(
	ctx context.Context, id kvevents.ReaderID,
) (kvevents.EventBatch, error) {
	m := &kvevents.ReadSnapshot{Reader: id}
	err := first(e.Do(ctx, m), &m.Err)
	return m.Batch, err
}

// Snapshot reads every key of the tree, to start a mirror; later Events go on from
// there. The cost is linear in the stored tokens: they are hashed on a goroutine of the
// engine's own.
func (e *Engine) Snapshot(ctx context.Context) (kvevents.EventBatch, error) {
	return e.SnapshotOf(ctx, events.FirstReader)
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

// Check runs every invariant of every actor and joins all that is wrong. It walks all
// that the engine holds, so it is for tests and for the time after something odd.
func (e *Engine) Check(ctx context.Context) error {
	m := &inspect.Check{}
	return first(e.Do(ctx, m), &m.Err)
}

// SetScales sets what keys and values of layers with 8-bit elements were
// divided by, all or none: see messages.WriteScales. Scales that were never set are 1.
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
