package tree

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// none is the absence of a node, a session or a root.
const none int32 = -1

// Config is the shape of a tree.
type Config struct {
	TokensPerBlock int         // ≥ 1
	Pools          []PoolShape // by PoolID
	Blocks         int         // how many to have room for from the start
	Events         bool        // record changes for the event log
	Host           bool        // there is host memory: answer with HostForget
	// answer with Follow: the eviction policy of pools of states is forecast
	Follow bool
	// SavePriority is the least of contents that a store would take.
	SavePriority messages.Priority
}

// Tree is the radix tree of all pools. One goroutine at a time uses it. It consists of
// layers, each of which has the one below as a part and knows nothing of those above, and
// of one type for each kind of request, which works on them: see the comment of the
// package.
type Tree struct {
	holdings // the top layer, and by it all others

	matcher   matcher
	storer    storer
	forgetter forgetter
}

// New makes an empty tree.
func New(c Config) *Tree {
	t := &Tree{}
	t.arena.shape = newShape(&c)
	t.arena.reserve(c.Blocks)
	t.arena.sessions = newNumbers[string]()
	t.arena.byName = map[rootName]int32{}
	t.arena.symbols = symbols{newNumbers[symbol]()}
	t.recording = c.Events
	t.log.changes = &protocol.Changes{}
	t.host, t.following, t.savePriority = c.Host, c.Follow, c.SavePriority

	t.appraiser = appraiser{reporter: &t.reporter}
	t.matcher = matcher{arena: &t.arena, clean: make([]int32, len(c.Pools))}
	t.storer = storer{holdings: &t.holdings}
	t.forgetter = forgetter{holdings: &t.holdings}
	return t
}

// Blocks returns the number of blocks that some pool holds.
func (t *Tree) Blocks() int { return t.arena.blocksHeld }

// Symbols returns the number of symbols that blocks or sequences hold.
func (t *Tree) Symbols() int { return len(t.arena.symbols.index) }

// Apply changes the tree, part by part in the order of the fields of a. The order of
// the parts has reasons. Moves say what pools and offloader have done already, so
// they come first: a page that a move frees may be offered by a store of the same
// message. A block that is taken over has left before claims and stores look for
// blocks. Symbols are released last, when the stored blocks have their own
// references, so that no entry is freed and made again with another number.
func (t *Tree) Apply(a *protocol.Apply) {
	t.log.begin(a.Effects)
	t.expire(a.Now)
	t.unsaved = 0
	for _, m := range a.Moves {
		t.moveBlock(m)
	}
	t.followReturned()
	for _, b := range a.Takeovers {
		t.forgetter.takeOver(b)
	}
	for i := range a.Claims {
		t.storer.claim(&a.Claims[i])
	}
	for i := range a.Stores {
		t.storer.store(&a.Stores[i])
	}
	for _, tokens := range a.ReleasedSymbols {
		t.arena.symbols.release(tokens)
	}
	t.appraiser.appraise()
	a.Effects, a.Unsaved = t.log.end(), t.unsaved
	a.NextExpiry = t.arena.timers.next()
	t.verify()
}

// Match answers all items of m on the present state. No item sees what another one
// does, so the order of items in a batch does not matter.
func (t *Tree) Match(m *protocol.Match) {
	for i := range m.Items {
		t.matcher.match(&m.Items[i])
	}
	t.verify()
}

// Forget removes blocks from the tree and answers how many of them no pool holds any
// more.
func (t *Tree) Forget(f *protocol.Forget) {
	t.log.begin(f.Effects)
	t.expire(f.Now)
	t.unsaved = 0
	f.Blocks = t.forgetter.forget(f)
	t.appraiser.appraise()
	f.Effects, f.Unsaved = t.log.end(), t.unsaved
	t.verify()
}

// Locate answers where each pool keeps blocks; Nowhere for those that have left the
// tree.
func (t *Tree) Locate(l *protocol.Locate) {
	l.Saveable = resize(l.Saveable, len(l.Blocks))
	for k, b := range l.Blocks {
		l.Saveable[k] = t.arena.alive(b) && t.saveable(b)
	}
	l.Pages = resize(l.Pages, len(t.arena.pools))
	for p := range t.arena.pools {
		l.Pages[p] = resize(l.Pages[p], len(l.Blocks))
		for k, b := range l.Blocks {
			l.Pages[p][k] = protocol.Nowhere
			if t.arena.alive(b) {
				l.Pages[p][k] = t.arena.locations[p][b]
			}
		}
	}
}

// Attached lists, by pool, the device pages of all blocks, so that a check can
// compare the tree with the pools.
func (t *Tree) Attached() [][]protocol.PageBlock {
	list := make([][]protocol.PageBlock, len(t.arena.pools))
	for b := range t.arena.walk() {
		for p := range t.arena.pools {
			if page := t.arena.devicePage(p, b); page != messages.NoPage {
				front := t.frontOf(p, b)
				if t.untold && front != messages.NoPage {
					front = protocol.AnyPage
				}
				list[p] = append(list[p], protocol.PageBlock{
					Page: page, Block: b, Front: front, Useless: t.arena.toldUseless(p, b),
				})
			}
		}
	}
	return list
}

// TakeChanges returns what has changed since the last call, in order, for the
// event log. The tree does not use the record any more. It is nil if nothing has
// changed, and if events are not recorded.
func (t *Tree) TakeChanges() *protocol.Changes {
	c := t.log.changes
	if len(c.List) == 0 {
		return nil
	}
	// An event must not be continued in the next record: the log may have made it by
	// then.
	t.log.event = noEvent
	t.log.changes = &protocol.Changes{}
	return c
}

// verify panics with everything wrong, and the picture, in builds with the tag
// invariants.
func (t *Tree) verify() {
	if !invariants.Enabled {
		return
	}
	if err := t.Check(); err != nil {
		panic(fmt.Sprintf("tree: %v\n%s", err, t))
	}
}
