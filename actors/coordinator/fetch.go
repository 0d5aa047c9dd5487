package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// fetch serves Fetch: contents that a store has become cached contents of host memory.
// The store is asked beside the engine; this transaction never waits for it.
//
//	start ─▶ surveying ─▶ answer: what is missing
//	             │
//	             └─▶ loading ─▶ applying ─▶ following ─▶ answer
//	                  │   ▲ the next shorter length, if host memory has no room
//	                  └───┘
//	                  └─▶ answer: what is to be read
//
// The length is the longest whole number of blocks of which every page that a match
// would claim, checkpoints included, is in a tier or in the store, and for whose
// missing pages host memory has room. Exactly these pages come in.
type fetch struct {
	*shared
	request *protocol.Fetch
	stage   fetchStage
	match   protocol.Match
	survey  *protocol.Survey
	load    protocol.LoadPages
	length  int // blocks
}

// fetchStage is what the fetch waits for.
type fetchStage uint8

// The stages.
const (
	fetchIdle      fetchStage = iota // nothing has been sent
	fetchSurveying                   // the tree says which pages are there
	fetchLoading                     // host memory makes room and takes the bytes
	fetchApplying                    // the tree attaches them
	fetchFollowing                   // pools and host memory follow
)

// String names the stage.
func (s fetchStage) String() string {
	return [...]string{"idle", "surveying", "loading", "applying", "following"}[s]
}

// open begins a request.
func (f *fetch) open(r *protocol.Fetch) { f.request, f.stage = r, fetchIdle }

// start asks the tree for the blocks of the prefix.
func (f *fetch) start() {
	r := f.request
	r.Err, r.Missing, r.Wanted, r.Fetched = nil, nil, nil, 0
	if err := f.config.ValidatePrefix(&r.Prefix); err != nil {
		r.Err = err
		f.kernel.reply()
		return
	}
	if !f.config.Reuse || len(r.Prefix.Tokens) < f.config.TokensPerBlock {
		f.kernel.reply()
		return
	}
	f.survey = &protocol.Survey{}
	f.match.Epoch = f.kernel.epoch
	f.match.Items = append(f.match.Items[:0], protocol.MatchItem{
		Namespace: f.config.keyed(r.Prefix.Namespace, r.Prefix.Encoder, r.Prefix.EncoderItems),
		Tokens:    slices.Clone(r.Prefix.Tokens), Multimodal: r.Prefix.Multimodal, Limit: len(r.Prefix.Tokens),
		KeepSymbols: len(r.Prefix.Multimodal) > 0, Survey: f.survey,
	})
	f.stage = fetchSurveying
	f.kernel.toTree(&f.match)
}

// resume does the stage that follows.
func (f *fetch) resume() {
	switch f.stage {
	case fetchSurveying:
		f.surveyed()
	case fetchLoading:
		f.loaded()
	case fetchApplying:
		f.stage = fetchFollowing
		f.out.applied()
		f.touch()
		f.out.followUp()
	case fetchFollowing:
		f.out.followed()
		f.stage = fetchIdle
		f.kernel.reply()
	case fetchIdle:
	}
}

// blocks is the number of whole blocks of the prefix.
func (f *fetch) blocks() int { return len(f.request.Prefix.Tokens) / f.config.TokensPerBlock }

// at is where a pool keeps a block of the prefix.
func (f *fetch) at(p, b int) protocol.Location {
	if b >= len(f.survey.Blocks) {
		return protocol.Nowhere
	}
	return f.survey.Pages[p][b]
}

// surveyed answers what is missing, or goes on with what the store has.
func (f *fetch) surveyed() {
	if f.request.Stored != nil {
		f.length = f.blocks()
		f.try()
		return
	}
	missing := f.grid()
	for p := range missing {
		for b := range missing[p] {
			missing[p][b] = f.at(p, b) == protocol.Nowhere && f.keeps(p) && f.config.Onboard
		}
	}
	f.request.Missing = missing
	f.finish()
}

// keeps tells whether matches claim pages of stored blocks in the pool.
func (f *fetch) keeps(p int) bool {
	pool := &f.config.Pools[p]
	return pool.Kind != windows.KindState || pool.Checkpoints
}

// grid has a place for each pool and block.
func (f *fetch) grid() [][]bool {
	g := make([][]bool, f.self.end)
	for p := range g {
		g[p] = make([]bool, f.blocks())
	}
	return g
}

// needs tells whether a match of so many blocks claims a page.
func (f *fetch) needs(p, b, length int) bool {
	pool := &f.config.Pools[p]
	if pool.Kind == windows.KindState {
		return pool.Checkpoints && b == length-1
	}
	return pool.Needs(b, length*f.config.TokensPerBlock)
}

// covered tells whether every page that a match of so many blocks claims is in a tier
// or in the store, and puts what is needed from the store and what must not be displaced
// into load.
func (f *fetch) covered(length int) bool {
	m, stored := &f.load, f.request.Stored
	m.Counts, m.Keep = make([]int, len(f.config.Pools)), make([][]protocol.BlockID, len(f.config.Pools))
	m.Bytes = make([][][]byte, len(f.config.Pools))
	// What an earlier load has answered is not of this one.
	m.DryRun, m.Refused, m.Pages, m.Displaced = false, false, nil, nil
	for p := range f.self.end {
		for b := range length {
			switch at := f.at(p, b); {
			case !f.needs(p, b, length):
			case at != protocol.Nowhere:
				if _, tier, _ := at.Page(); tier == messages.Secondary {
					m.Keep[p] = append(m.Keep[p], f.survey.Blocks[b])
				}
			case !stored[p][b]:
				return false
			default:
				m.Counts[p]++
				bytes := f.request.Bytes[p][b]
				m.Bytes[p] = append(m.Bytes[p], bytes)
				m.DryRun = m.DryRun || bytes == nil
			}
		}
	}
	return true
}

// try asks for room for the longest length from f.length down.
func (f *fetch) try() {
	for ; f.length > 0; f.length-- {
		if !f.covered(f.length) {
			continue
		}
		if !slices.ContainsFunc(f.load.Counts, func(n int) bool { return n > 0 }) {
			f.attach()
			return
		}
		f.load.Epoch, f.load.Priority = f.kernel.epoch, messages.DefaultPriority
		f.load.Tenant = f.config.Tenants[f.request.Prefix.Namespace.Salt]
		f.stage = fetchLoading
		f.kernel.toOffloader(&f.load)
		return
	}
	f.finish()
}

// loaded goes on with the answer of the offloader.
func (f *fetch) loaded() {
	switch {
	case f.load.Refused:
		f.length--
		f.try()
	case f.load.DryRun:
		wanted := f.grid()
		for p := range wanted {
			for b := range f.length {
				wanted[p][b] = f.needs(p, b, f.length) && f.at(p, b) == protocol.Nowhere && f.request.Bytes[p][b] == nil
			}
		}
		f.request.Wanted = wanted
		f.finish()
	default:
		f.attach()
	}
}

// attach tells the tree what came in and what was displaced for it.
func (f *fetch) attach() {
	f.out.resetChange()
	f.addDisplaced()
	item := protocol.StoreItem{
		OnHost: true, Namespace: f.match.Items[0].Namespace, Tokens: f.match.Items[0].Tokens,
		To: f.length * f.config.TokensPerBlock, Prompt: len(f.match.Items[0].Tokens),
	}
	fetched := make([]bool, f.length)
	for p := range f.config.Pools {
		table := slices.Repeat([]messages.PageID{messages.NoPage}, f.length)
		next := 0
		for b := range f.length {
			if p < f.self.end && next < f.load.Counts[p] && f.needs(p, b, f.length) && f.at(p, b) == protocol.Nowhere {
				table[b], fetched[b] = f.load.Pages[p][next], true
				next++
			}
		}
		item.Tables = append(item.Tables, table)
	}
	for _, came := range fetched {
		if came {
			f.request.Fetched++
		}
	}
	if f.request.Fetched > 0 {
		f.out.change.Stores = append(f.out.change.Stores, item)
	}
	f.releaseSymbols()
	f.stage = fetchApplying
	f.out.apply()
}

// addDisplaced tells the tree what host memory has dropped.
func (f *fetch) addDisplaced() {
	for p := range f.load.Displaced {
		f.stats.pool(p).Dropped += int64(len(f.load.Displaced[p]))
		for _, b := range f.load.Displaced[p] {
			f.out.moveBlock(p, b, protocol.Nowhere)
		}
	}
}

// touch leaves a use on all pages of the match.
func (f *fetch) touch() {
	use := f.uses.next()
	for i := range f.out.change.Effects {
		if e := &f.out.change.Effects[i]; e.Kind == protocol.HostAttach {
			f.touchHost(int(e.Pool), use, e.Blocks...)
		}
	}
	for p := range f.self.end {
		var pages []messages.PageID
		for b := range f.length {
			page, tier, ok := f.at(p, b).Page()
			switch {
			case !ok || !f.needs(p, b, f.length):
			case tier == messages.Primary:
				pages = append(pages, page)
			default:
				f.touchHost(p, use, f.survey.Blocks[b])
			}
		}
		if len(pages) > 0 {
			f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
			f.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: use})
		}
	}
}

func (f *fetch) touchHost(p int, use protocol.Use, blocks ...protocol.BlockID) {
	q := f.out.move.pool(p)
	for _, b := range blocks {
		q.Touches = append(q.Touches, protocol.Touch{Block: b, Use: use})
	}
}

// finish answers, after the tree has forgotten the symbols of the prefix.
func (f *fetch) finish() {
	f.length = 0
	f.out.resetChange()
	if f.releaseSymbols(); !f.out.changeNeeded() {
		f.stage = fetchIdle
		f.kernel.reply()
		return
	}
	f.stage = fetchApplying
	f.out.apply()
}

func (f *fetch) releaseSymbols() {
	if it := &f.match.Items[0]; it.KeepSymbols {
		f.out.change.ReleasedSymbols = append(f.out.change.ReleasedSymbols, it.Tokens)
	}
}

// undo says what the tree must be told of: contents that were dropped for pages that
// the tree has not attached.
func (f *fetch) undo(bool) verdict {
	if f.stage == fetchLoading && !f.load.DryRun && !f.load.Refused {
		f.out.resetChange()
		f.addDisplaced()
		f.out.unackedMoves = f.out.change.Moves
	}
	f.stage = fetchIdle
	return serveAgain
}

// renew takes new records for a new epoch.
func (f *fetch) renew() {
	f.match, f.load, f.survey = protocol.Match{}, protocol.LoadPages{}, nil
}

func (f *fetch) check() error {
	if f.length > f.blocks() {
		return fmt.Errorf("fetch: %d blocks of %d", f.length, f.blocks())
	}
	return nil
}

// String names the stage.
func (f *fetch) String() string { return fmt.Sprintf("fetch: %v", f.stage) }
