package fleet

import (
	"context"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/messages"
)

// storedEngine is an engine whose admissions fetch from the store first, one after the
// other, and take the modelled time for it.
type storedEngine struct {
	engine.Engine
	store    actors.Store
	link     float64 // modelled bits a second
	fetching time.Duration
	// advance moves the device's time.
	advance func(time.Duration)
	// modelled gives the bytes of the modelled model that objects stand for.
	modelled func(objects, bytes int64) int64
}

// fetchTimeout bounds the wall time of one fetch. The store is on this machine.
const fetchTimeout = 10 * time.Second

// AdmitBatch fetches for all requests and admits them. Fetches that go side by side would
// take host pages in an order that depends on the scheduler.
func (e *storedEngine) AdmitBatch(
	ctx context.Context, requests []messages.AdmitRequest,
) ([]messages.Admitted, error) {
	before := e.store.Stats()
	for i := range requests {
		if err := e.fetch(ctx, requests[i].Tokens); err != nil {
			return nil, err
		}
	}
	after := e.store.Stats()
	if n := after.FetchedObjects - before.FetchedObjects; n > 0 {
		bits := 8 * float64(e.modelled(n, after.FetchedBytes-before.FetchedBytes))
		takes := storeLatency + time.Duration(bits/e.link*float64(time.Second))
		e.fetching += takes
		e.advance(takes)
	}
	admitted, err := e.Engine.AdmitBatch(ctx, requests)
	return admitted, e.awaitSaves(ctx, err)
}

// storeLatency is that of the questions and answers of one fetch beside its bytes.
const storeLatency = time.Millisecond

func (e *storedEngine) fetch(ctx context.Context, tokens []messages.Token) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	_, err := e.store.Fetch(ctx, messages.Prefix{Tokens: tokens})
	return err
}

// Commit is the engine's.
func (e *storedEngine) Commit(
	ctx context.Context, steps []messages.CommitStep,
) ([]messages.StepResult, error) {
	results, err := e.Engine.Commit(ctx, steps)
	return results, e.awaitSaves(ctx, err)
}

// Append is the engine's.
func (e *storedEngine) Append(
	ctx context.Context, steps []messages.AppendStep,
) ([]messages.StepResult, error) {
	results, err := e.Engine.Append(ctx, steps)
	return results, e.awaitSaves(ctx, err)
}

// Release is the engine's.
func (e *storedEngine) Release(
	ctx context.Context, steps []messages.ReleaseStep,
) ([]messages.StepResult, error) {
	results, err := e.Engine.Release(ctx, steps)
	return results, e.awaitSaves(ctx, err)
}

// awaitSaves waits for what a call saves. The tasks that write move the device's time: beside
// the server's steps they would do so whenever the scheduler runs them.
func (e *storedEngine) awaitSaves(ctx context.Context, err error) error {
	if err == nil {
		_, err = e.store.Flush(ctx, 0)
	}
	return err
}
