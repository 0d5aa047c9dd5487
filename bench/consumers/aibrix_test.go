package consumers

import (
	"context"
	"encoding/binary"
	"io"
	"log"
	"sync"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vllm-project/aibrix/pkg/cache/kvcache"
	"github.com/vllm-project/aibrix/pkg/utils/syncprefixcacheindexer"

	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
)

// aibrix is AIBrix's index, behind its decoder. Its own socket needs libzmq, so another
// one is read here; events are passed on as its handler does.
type aibrix struct {
	t      *testing.T
	index  *syncprefixcacheindexer.SyncPrefixHashTable
	mu     sync.Mutex
	faults []error
}

func subscribeAIBrix(t *testing.T, endpoint string) *aibrix {
	a := &aibrix{t: t, index: syncprefixcacheindexer.NewSyncPrefixHashTable()}
	ctx, cancel := context.WithCancel(context.Background())
	sub := zmq4.NewSub(ctx, zmq4.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, sub.Dial(endpoint))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, ""))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := sub.Recv()
			if err != nil {
				return
			}
			a.process(m.Frames[2])
		}
	}()
	t.Cleanup(func() { cancel(); _ = sub.Close(); <-done; a.index.Close() })
	return a
}

func (a *aibrix) process(payload []byte) {
	fault := func(err error) {
		if err != nil {
			a.mu.Lock()
			a.faults = append(a.faults, err)
			a.mu.Unlock()
		}
	}
	batch, err := kvcache.DecodeEventBatch(payload, model, "pod")
	if fault(err); err != nil {
		return
	}
	for _, e := range batch.Events {
		switch e := e.(type) {
		case *kvcache.BlockStoredEvent:
			fault(a.index.ProcessBlockStored(syncprefixcacheindexer.BlockStored{
				BlockHashes: e.BlockHashes, ParentBlockHash: e.ParentBlockHash, Tokens: e.TokenIDs,
				ModelName: model, LoraID: -1, SourcePod: "pod",
			}))
		case *kvcache.BlockRemovedEvent:
			fault(a.index.ProcessBlockRemoved(syncprefixcacheindexer.BlockRemoved{
				BlockHashes: e.BlockHashes, ModelName: model, LoraID: -1, SourcePod: "pod",
			}))
		case *kvcache.AllBlocksClearedEvent:
			fault(a.index.ProcessAllBlocksCleared(syncprefixcacheindexer.AllBlocksCleared{}))
		}
	}
}

// blocks is how many leading blocks of a prompt AIBrix says that the pod has. It answers
// in whole percents, which are different for up to 100 blocks.
func (a *aibrix) blocks(tokens []messages.Token) int {
	var text []byte
	for _, tok := range tokens {
		text = binary.BigEndian.AppendUint32(text, uint32(tok))
	}
	whole := len(tokens) / blockTokens
	match, _ := a.index.MatchPrefix(model, -1, text[:4*blockTokens*whole],
		map[string]struct{}{"pod": {}})
	for n := range whole + 1 {
		if n*100/whole == match["pod"] {
			return n
		}
	}
	a.t.Fatalf("%d %% of %d blocks", match["pod"], whole)
	return 0
}

// answer has no tiers, and says nothing of the namespaces that AIBrix does not know:
// the host is told that they agree.
func (a *aibrix) answer(h *host) func(prompt) []string {
	return func(p prompt) []string {
		want, got := h.published(p), a.blocks(p.tokens)
		if (p.ns != messages.Namespace{}) {
			require.Empty(a.t, want, "salted blocks and those of adapters are not published")
			return nil
		}
		if got == len(want) {
			return want
		}
		return make([]string, got)
	}
}

// After each step AIBrix says of each prompt how many of its blocks the engine has.
func TestAIBrixFollows(t *testing.T) {
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint,
		func(o *wire.Options) { o.Config.Format = "aibrix"; o.Config.SnapshotOnSubscribe = true })
	defer h.close()
	reader := subscribeAIBrix(t, endpoint)
	published := 0
	for range 150 {
		h.step()
		h.follow("AIBrix", reader.answer(h))
		for _, p := range h.prompts {
			published += len(h.published(p))
		}
	}
	assert.Greater(t, published, 100)
	late := subscribeAIBrix(t, endpoint)
	h.follow("AIBrix, which came late,", late.answer(h))
	reader.mu.Lock()
	defer reader.mu.Unlock()
	assert.Empty(t, reader.faults)
}

// AIBrix 0.7.0 does nothing on AllBlocksCleared: after a restart it keeps what the
// engine had, until the pod is removed.
func TestAIBrixForgetsNothingOverARestart(t *testing.T) {
	endpoint := freeEndpoint(t)
	format := func(o *wire.Options) { o.Config.Format = "aibrix"; o.Config.SnapshotOnSubscribe = true }
	h := newHost(t, endpoint, format)
	reader := subscribeAIBrix(t, endpoint)
	var had prompt
	for had.tokens == nil {
		h.step()
		if p := h.prompts[len(h.prompts)-1]; (p.ns == messages.Namespace{}) && len(h.published(p)) > 0 {
			had = p
		}
	}
	h.follow("AIBrix", reader.answer(h))
	n := len(h.published(had))
	h.close()
	h = newHost(t, endpoint, format)
	defer h.close()
	assert.Empty(t, h.published(had))
	assert.Equal(t, n, reader.blocks(had.tokens))
	require.NoError(t, reader.index.RemovePrefix(model, -1, "pod"))
	assert.Zero(t, reader.blocks(had.tokens))
}
