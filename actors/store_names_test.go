package actors

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/guard"
)

// toldOf makes the change that tells of blocks of two tokens, the first of which begins a prefix.
func toldOf(blocks ...protocol.BlockID) *blocksChanged {
	c := &protocol.Changes{Blocks: blocks, Namespaces: make([]messages.Namespace, 1)}
	for i := range 2 * len(blocks) {
		c.Tokens = append(c.Tokens, messages.Token(10*int(blocks[0])+i))
	}
	c.List = []protocol.Change{{
		Kind: protocol.BlocksEntered, Last: blocks[len(blocks)-1], Count: int32(len(blocks)),
		Tokens: int32(len(c.Tokens)), Parent: protocol.NoBlock,
	}}
	return &blocksChanged{changes: c}
}

// A block number names what it was when the pages were accepted: neither the block that had it
// before nor one that has it afterwards. Pages of blocks that were not told, or were forgotten,
// have no name: the coordinator is told of them, and their save pages come back at once, also
// when no job can start.
func TestPagesAreNamedInOrder(t *testing.T) {
	system, worker := NewSystem(nil), mailbox.NewWorker()
	told := 0
	coordinator := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*notSaved); ok {
			told += len(m.items)
		}
	}, mailbox.Inline(worker)...))
	t.Cleanup(func() {
		_ = system.Root.StopFuture(coordinator).Wait()
		worker.Close()
		system.Shutdown()
	})
	given := 0
	a := &storeActor{
		saver: &saver{config: &StoreConfig{}, coordinator: mailbox.Of(system, coordinator),
			client: guard.New(t.Context(), guard.Config{Log: slog.New(slog.DiscardHandler),
				Geometry: stores.Geometry{Pools: []messages.PoolInfo{{PageBytes: 8}}}})},
		background:     &background{schedule: func(func()) { given++ }},
		tokensPerBlock: 2,
	}
	a.index = a.emptyIndex()
	save := func(blocks ...protocol.BlockID) (named []blockkeys.Described) {
		m, before := &savedPages{}, len(a.jobs)
		for _, b := range blocks {
			m.items = append(m.items, savedPage{block: b, page: messages.PageID(b)})
		}
		a.receive(m)
		for _, job := range a.jobs[before:] {
			for _, it := range job.items {
				named = append(named, it.named)
			}
		}
		return named
	}
	a.receive(toldOf(1, 2))
	first := save(1, 2, 9)
	require.Len(t, first, 2)
	assert.Equal(t, []messages.Token{10, 11}, first[0].Block.Tokens)
	assert.Equal(t, []messages.Token{12, 13}, first[1].Block.Tokens)
	assert.Equal(t, first[0].Key, first[1].Block.Parent)
	assert.Equal(t, 1, told)
	assert.Equal(t, 1, given)
	a.receive(toldOf(1))
	second := save(1)
	require.Len(t, second, 1)
	assert.Equal(t, first[0].Key, second[0].Key, "the same tokens")
	a.receive(&blocksChanged{changes: &protocol.Changes{}, all: true})
	assert.Empty(t, save(1, 2))
	assert.Equal(t, 3, told)
	assert.EqualValues(t, 3, a.saver.client.Stats().Dropped)
}
