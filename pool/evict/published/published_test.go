package published

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// published are the policies, and how their papers have them.
var published = map[string]struct {
	open  func(*evict.Core, evict.Options) evict.Policy
	plain func(capacity int) plain
}{
	ARC: {newARC, func(n int) plain { return &plainARC{capacity: n} }},
	S3FIFO: {newS3FIFO, func(n int) plain {
		return &plainS3FIFO{capacity: n, uses: map[int32]int{}}
	}},
	WTinyLFU:      {newTinyLFU, newPlainTinyLFU},
	GDSFDepth:     {newGDSF, newPlainGDSF},
	SupersededLRU: {newSuperseded, newPlainSuperseded},
}

// holder is a policy that can be told another number of pages than there are.
type holder interface{ hold(pages int) }

// opened is the policy that was opened last by a name of init.
var opened holder

func init() {
	for name, p := range published {
		evict.Register("held "+name, func(c *evict.Core, o evict.Options) evict.Policy {
			policy := p.open(c, o)
			opened = policy.(holder)
			return policy
		})
	}
}

// drawPrompts draws conversations that grow and branch, as numbers of blocks.
func drawPrompts(t *rapid.T) (prompts [][]int32, blocks int32) {
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		var prompt []int32
		if n := len(prompts); n > 0 && rapid.IntRange(0, 3).Draw(t, "new") > 0 {
			old := prompts[rapid.IntRange(0, n-1).Draw(t, "old")]
			prompt = append(prompt, old[:rapid.IntRange(0, len(old)).Draw(t, "shared")]...)
		}
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			prompt = append(prompt, blocks)
			blocks++
		}
		prompts = append(prompts, prompt)
	}
	return prompts, blocks
}

// memory is a Core with a page for each block, of which so many may be in use.
type memory struct {
	core     *evict.Core
	capacity int
	use      protocol.Use
}

func newMemory(policy string, capacity, blocks int) *memory {
	o := evict.Options{Name: "held " + policy, Span: 1, BlockTokens: testBlockTokens}
	config := evict.Config{Pages: blocks, Total: blocks, Policy: o}
	m := &memory{core: evict.New(config), capacity: capacity}
	opened.hold(capacity)
	return m
}

// hold makes a policy believe that there are so many pages.
func (b *perBlock) hold(pages int) { b.capacity = pages }

// hasBlock tells whether a block is cached.
func (m *memory) hasBlock(b int32) bool { return m.core.Page(b).Stored }

// prompt uses the blocks of a prompt at once, and evicts what is too much then.
func (m *memory) prompt(prompt []int32, depth int32) {
	m.use += 2
	facts := &evict.Request{Blocks: int(depth) + len(prompt)}
	facts.Signatures = make([]uint64, depth)
	var path []messages.PageID
	for k, b := range prompt {
		if m.hasBlock(b) {
			m.core.Remove(b)
			m.core.Touch(b, m.use)
		} else {
			m.core.Join(b, protocol.OtherTenants)
			m.core.Store(b, evict.Contents{Use: m.use, Depth: depth + int32(k), Priority: 35})
		}
		path = append(path, messages.PageID(b))
		facts.Signatures = append(facts.Signatures, uint64(b)+1)
	}
	m.core.Used(path, facts)
}

// add makes the blocks of a prompt evictable.
func (m *memory) add(prompt []int32) {
	for _, b := range slices.Backward(prompt) {
		m.core.Add(b)
	}
}

// evict makes room for so many more pages.
func (m *memory) evict(pages int) {
	for m.core.Waiting()+pages > m.capacity {
		p := m.core.Victim(protocol.OtherTenants)
		m.core.Remove(p)
		m.core.Forget(p)
		m.core.Leave(p)
	}
}

// TestPublished: where the order of events is that of the papers, each policy caches the same
// blocks as its plain form. For those that look at single blocks it is one block after the
// other: it is used, another one is evicted for it, and it may be evicted. For those that look
// at paths the whole prompt is stored, and then others are evicted.
func TestPublished(t *testing.T) {
	for policy, p := range published {
		paths := policy == GDSFDepth || policy == SupersededLRU
		t.Run(policy, rapid.MakeCheck(func(t *rapid.T) {
			prompts, blocks := drawPrompts(t)
			capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
			m, oracle := newMemory(policy, capacity, int(blocks)), p.plain(capacity)
			for i, prompt := range prompts {
				if paths {
					m.prompt(prompt, 0)
					m.add(prompt)
					m.evict(0)
				}
				for k := len(prompt) - 1; k >= 0 && !paths; k-- {
					if policy == S3FIFO && !m.hasBlock(prompt[k]) {
						m.evict(1) // its paper looks into the history after that
					}
					m.prompt(prompt[k:k+1], int32(k))
					m.evict(1)
					m.add(prompt[k : k+1])
				}
				oracle.use(i, prompt)
				for b := range blocks {
					require.Equal(t, oracle.has(b), m.hasBlock(b), "block %d after %d", b, i)
				}
				require.NoError(t, m.core.Check())
				require.LessOrEqual(t, m.core.Waiting(), capacity)
			}
		}))
	}
}

// TestRegistered: a program that imports the package may name its policies.
func TestRegistered(t *testing.T) {
	for name := range published {
		require.Contains(t, windows.EvictionPolicies(), name)
	}
}

// TestSizes holds the memory that the package comment states.
func TestSizes(t *testing.T) {
	require.EqualValues(t, 64, unsafe.Sizeof(ranked{})+unsafe.Sizeof(evict.Neighbours{}))
}
