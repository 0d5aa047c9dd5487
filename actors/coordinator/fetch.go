package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// fetch serves Fetch: contents that a store has become cached contents of host memory.
// The store is asked beside the engine; this transaction never waits for it.
//
//	start ─▶ locating ─▶ answer: what is missing
//	             │
//	             └─▶ measuring ─▶ answer: what is to be read
//	                     │
//	                     └─▶ loading ─▶ applying ─▶ following ─▶ answer
//
// The length is the longest whole number of blocks of which every page that a match
// would claim, checkpoints included, is in a tier or in the store, and for whose
// missing pages host memory has room. Exactly these pages come in. A prefix without tokens
// names the encoder's input itself, of which all blocks come in or none: a match needs all.
//
// A Fetch of a host is several of these requests. The first has no Stored and is answered with
// Missing; the next has no Bytes and is answered with Wanted; the last has the bytes. Other
// requests are served between them and may change the tree, so each of them asks the tree for
// the prefix again and keeps nothing of the one before.
type fetch struct {
	*shared
	stages[fetch]
	request *protocol.Fetch
	pools   poolRange        // decoder, or cross for the input of the encoder
	tokens  []messages.Token // of the prefix, or of the padded input
	match   protocol.Match
	inTree  *protocol.BlocksInTree
	room    protocol.HostRoom
	load    *protocol.LoadPages // nil before it is made, and when the tree is told what came of it
	length  int                 // blocks
}

// start asks the tree for the blocks of the prefix.
func (f *fetch) start(request any) {
	f.request, f.load = request.(*protocol.Fetch), nil
	r := f.request
	r.Err, r.Missing, r.Wanted, r.Fetched, r.Length = nil, nil, nil, 0, 0
	if err := f.config.ValidatePrefix(&r.Prefix); err != nil {
		r.Err = err
		f.kernel.reply()
		return
	}
	if r.Stored == nil {
		r.Weights = f.config.identity
	} else if r.Weights != f.config.identity {
		f.kernel.reply() // the weights have changed since the store was asked
		return
	}
	var namespace messages.Namespace
	if namespace, f.tokens = f.config.StoredAs(&r.Prefix); len(r.Prefix.Tokens) > 0 {
		f.pools = f.decoder
	} else {
		f.pools = f.cross
	}
	// Without block reuse nothing is stored, and a store has no object for a part of a block.
	// Missing and Wanted stay nil, which ends the Fetch of the host.
	if !f.config.Reuse || len(f.tokens) < f.config.TokensPerBlock {
		f.kernel.reply()
		return
	}
	// The tokens are a copy, because the tree writes symbols into them in place and the request
	// stays the host's. The tree keeps the symbols beyond the match: the store of attach names
	// the same blocks by them.
	f.inTree = &protocol.BlocksInTree{}
	f.match.Epoch = f.kernel.epoch
	f.match.Items = append(f.match.Items[:0], protocol.MatchItem{
		Namespace: namespace, Cross: f.isInput(),
		Tokens: slices.Clone(f.tokens), Multimodal: r.Prefix.Multimodal, Limit: len(f.tokens),
		KeepSymbols: len(r.Prefix.Multimodal) > 0, InTree: f.inTree,
	})
	f.wait(f, "fetch: locating", (*fetch).located)
	f.kernel.toTree(&f.match)
}

// applied makes pools and host memory follow the tree.
func (f *fetch) applied() {
	f.wait(f, "fetch: following", (*fetch).end)
	f.out.applied()
	// Behind applied, which empties the batches of pools and offloader. In the message
	// itself effects come before touches, so the new pages are attached when they are
	// touched.
	f.touch()
	f.out.followUp()
}

func (f *fetch) end() {
	f.out.followed()
	f.kernel.reply()
}

// isInput tells whether the prefix names the encoder's input itself.
func (f *fetch) isInput() bool { return len(f.request.Prefix.Tokens) == 0 }

// blocks is the number of whole blocks of the prefix.
func (f *fetch) blocks() int { return len(f.tokens) / f.config.TokensPerBlock }

// at is where a pool keeps a block of the prefix. The answer ends before the first block that
// the tree does not know; blocks behind it are nowhere.
func (f *fetch) at(p, b int) protocol.Location {
	if b >= len(f.inTree.Blocks) {
		return protocol.Nowhere
	}
	return f.inTree.Pages[p][b]
}

// located answers what is missing, or goes on with what the store has.
func (f *fetch) located() {
	// The answer is of this moment: what was missing when the host asked first may have come
	// since, and what was in a tier may have gone. So the length is looked for once more.
	if f.request.Stored != nil {
		f.measure()
		return
	}
	// A page in either tier is not missing. With onboard_blocks off host memory keeps nothing,
	// so nothing is worth reading.
	f.request.Missing = f.grid(func(p, b int) bool {
		return f.at(p, b) == protocol.Nowhere && f.keeps(p) && f.config.Onboard
	})
	f.finish()
}

// keeps tells whether matches claim pages of stored blocks in the pool.
func (f *fetch) keeps(p int) bool {
	pool := &f.config.Pools[p]
	return pool.Kind != windows.KindState || pool.Checkpoints
}

// grid says of each pool and block whether something holds. Pools that the prefix does not concern
// have places, too, so that callers index all grids by PoolID.
func (f *fetch) grid(holds func(p, b int) bool) [][]bool {
	g := make([][]bool, len(f.config.Pools))
	for p := range g {
		g[p] = make([]bool, f.blocks())
		for b := range g[p] {
			g[p][b] = f.pools.has(p) && holds(p, b)
		}
	}
	return g
}

// attach tells the tree what came in and what was displaced for it.
func (f *fetch) attach() {
	f.out.resetChange()
	f.addDisplaced()
	item := protocol.StoreItem{
		OnHost: true, Cross: f.isInput(), Namespace: f.match.Items[0].Namespace,
		Tokens: f.match.Items[0].Tokens,
		To:     f.length * f.config.TokensPerBlock, Prompt: len(f.match.Items[0].Tokens),
	}
	if f.isInput() {
		item.Prompt = len(f.request.Prefix.Encoder) // events leave the padding out
	}
	for range f.config.Pools {
		item.Tables = append(item.Tables, slices.Repeat([]messages.PageID{messages.NoPage}, f.length))
	}
	next := make([]int, len(f.config.Pools))
	for b := range f.length {
		came := false
		for p := f.pools.first; p < f.pools.end; p++ {
			if f.loads(p, b) {
				item.Tables[p][b] = f.load.Pages[p][next[p]]
				next[p]++
				came = true
			}
		}
		if came {
			f.request.Fetched++
		}
	}
	if f.request.Fetched > 0 {
		f.out.change.Stores = append(f.out.change.Stores, item)
	}
	f.releaseSymbols()
	f.load = nil
	f.wait(f, "fetch: applying", (*fetch).applied)
	f.out.apply()
}

// addDisplaced tells the tree what host memory has dropped. It is part of the change that
// attaches what came in. Moves come before stores in a change, so at no time does the tree know
// two blocks on one host page.
func (f *fetch) addDisplaced() {
	for p := range f.load.Displaced {
		for _, b := range f.load.Displaced[p] {
			f.out.displaced(p, b)
		}
	}
}

// touch leaves a use on all pages of the match. Pages that were there before would otherwise
// keep their older use, and could be evicted before the admission that the fetch is made for.
func (f *fetch) touch() {
	use := f.uses.next()
	for i := range f.out.change.Effects {
		if e := &f.out.change.Effects[i]; e.Kind == protocol.HostAttach {
			f.touchHost(int(e.Pool), use, e.Blocks...)
		}
	}
	for p := f.pools.first; p < f.pools.end; p++ {
		var pages []messages.PageID
		for b := range f.length {
			page, tier, ok := f.at(p, b).Page()
			switch {
			case !ok || !f.needs(p, b, f.length):
			case tier == messages.Primary:
				pages = append(pages, page)
			default:
				f.touchHost(p, use, f.inTree.Blocks[b])
			}
		}
		if len(pages) > 0 {
			// A pool records a use when a reference ends, so the pages are claimed and dropped
			// at once.
			f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
			f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: use})
		}
	}
}

// touchHost leaves a use on contents of host memory. The offloader records it without a
// reference to the page.
func (f *fetch) touchHost(p int, use protocol.Use, blocks ...protocol.BlockID) {
	q := f.out.move.pool(p)
	for _, b := range blocks {
		q.Touches = append(q.Touches, protocol.Touch{Block: b, Use: use})
	}
}

// finish answers where nothing is attached.
func (f *fetch) finish() {
	f.releaseSymbols()
	f.kernel.reply()
}

// releaseSymbols ends what KeepSymbols of the match has begun. Every way from a match to an
// answer goes through it once; without it the tree would keep the symbols.
func (f *fetch) releaseSymbols() {
	if it := &f.match.Items[0]; it.KeepSymbols {
		f.out.symbols = append(f.out.symbols, it.Tokens)
	}
}

// undo says what the tree must be told of: contents that were dropped for pages that
// the tree has not attached.
func (f *fetch) undo() {
	// From attach on they are in the change.
	if f.load != nil {
		f.out.resetChange()
		f.addDisplaced()
	}
}
