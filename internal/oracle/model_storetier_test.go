package oracle

import (
	"context"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// StoreTier is the requests of a model that concern its store.
type StoreTier struct{ o *Oracle }

// StoreOf returns the store's part of a model. It refuses with ErrNotSupported if there is
// none.
func StoreOf(o *Oracle) *StoreTier { return &StoreTier{o} }

// Fetch brings what the store has of a prefix to host memory. It answers of how many
// blocks a page came, and how many of the tokens a lookup matches then.
func (t *StoreTier) Fetch(
	ctx context.Context, q messages.Prefix,
) (blocks, localTokens int, err error) {
	if err := t.o.begin(); err != nil {
		return 0, 0, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return 0, 0, err
	}
	if t.o.cfg.Store == nil {
		return 0, 0, refusals.New(messages.ErrNotSupported, "there is no store")
	}
	blocks = t.o.fetcher.fetch(t.o.named(q))
	found, err := t.o.Lookup(ctx, q)
	return blocks, found.MatchedTokens, err
}

// Lookup is that of the oracle, with the tokens that a fetch would make match besides.
func (t *StoreTier) Lookup(ctx context.Context, q messages.Prefix) (messages.Found, error) {
	found, err := t.o.Lookup(ctx, q)
	if err != nil || !t.o.cfg.BlockReuse {
		return found, err
	}
	q = t.o.named(q)
	key := symbols(q.Tokens, q.Multimodal)
	length, _ := t.o.fetcher.longestFetch(q, key, t.o.fetcher.asked(q, key))
	found.StoredTokens = max(0, min(length, len(key)-1)-found.MatchedTokens)
	return found, nil
}

// Flush answers how many objects were saved since the last one. A sequence that is
// named must run.
func (t *StoreTier) Flush(_ context.Context, id messages.SequenceID) (int, error) {
	if err := t.o.begin(); err != nil {
		return 0, err
	}
	if t.o.cfg.Store == nil {
		return 0, refusals.New(messages.ErrNotSupported, "there is no store")
	}
	if id != 0 {
		if _, err := t.o.references.running(id); err != nil {
			return 0, err
		}
	}
	n := t.o.saver.saved
	t.o.saver.saved = 0
	return n, nil
}

// FailStore makes all calls of the store fail until it is called with false.
func (t *StoreTier) FailStore(down bool) {
	t.o.cfg.Store.Store.Fail(0)
	if down {
		const all = 1 << 30
		t.o.cfg.Store.Store.Fail(all)
	}
}
