package actors

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/guard"
)

// Fetched answers a Fetch.
type Fetched struct {
	Blocks      int // of which a page came in
	LocalTokens int // what a lookup of the prefix matches now
}

// errNoStore refuses what needs a store.
func errNoStore() error {
	return refusals.New(messages.ErrNotSupported, "the engine has no store")
}

// Store is an engine's access to its store.
type Store struct{ engine *Engine }

// StoreOf returns the access to an engine's store. Its methods refuse with
// ErrNotSupported if there is none.
func StoreOf(e *Engine) Store { return Store{e} }

// Flush returns when everything that was to be saved before has been, or has failed. It
// returns the number of objects written since the last Flush. Of a sequence it first
// makes sure that it runs; 0 names none.
func (s Store) Flush(ctx context.Context, id messages.SequenceID) (saved int, err error) {
	if s.engine.store == nil {
		return 0, errNoStore()
	}
	m := &protocol.Flush{Sequence: id}
	if err := first(s.engine.Do(ctx, m), &m.Err); err != nil {
		return 0, err
	}
	if err := flush(ctx, s.engine, m); err != nil {
		return 0, err
	}
	return int(s.engine.saver.written.Swap(0)), nil
}

// flush waits until all has been saved that was on its way, or waited for room, when a Flush was
// answered. As long as pages wait it asks again, and passes the gate by: the Flush was accepted.
// Between two times save pages may be on their way back with no job at the store, for a moment.
func flush(ctx context.Context, e *Engine, m *protocol.Flush) error {
	pause, left := time.Millisecond, math.MaxInt
	for patience := 0; patience < flushPatience; patience++ {
		for _, job := range m.Open {
			if err := awaitJob(ctx, e, job.(*saveJob)); err != nil {
				return err
			}
		}
		if m.Waiting == 0 {
			return nil
		}
		if len(m.Open) > 0 || m.Waiting < left {
			left, patience = m.Waiting, 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, flushPause)
		}
		m.Sequence = 0 // it may have ended since
		if err := serveOwn(ctx, e, m); err != nil {
			return err
		}
	}
	return nil
}

// awaitJob waits for the end of a job at the store.
func awaitJob(ctx context.Context, e *Engine, job *saveJob) (err error) {
	select {
	case <-job.over:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-e.saver.stopped:
		err = e.failure(mailbox.ErrStopped)
	}
	select {
	case <-job.over: // Close has waited for it
		return nil
	default:
		return err
	}
}

// flushPause is the longest time between two Flushes, and flushPatience how many are sent in vain
// before a flush gives up: save pages are lost where copies to them never end.
const (
	flushPause    = 16 * time.Millisecond
	flushPatience = 64
)

// Fetch brings what the store has of a prefix, whole blocks, into host memory. With an
// encoder–decoder model a prefix without tokens names the input of the encoder, which comes whole
// or not at all. Fetch returns what it has got when the context ends or the store fails; others are
// served meanwhile. The error is that of the prefix or of the engine, never that of the store.
func (s Store) Fetch(ctx context.Context, p messages.Prefix) (Fetched, error) {
	e := s.engine
	if e.store == nil {
		return Fetched{}, errNoStore()
	}
	f := newFetch(e, p)
	// The engine answers although the caller's time is over: it says what has come.
	serve := context.WithoutCancel(ctx)
	if err := f.run(ctx, serve); err != nil {
		return Fetched{}, err
	}
	found := &messages.Lookup{Prefix: p}
	err := first(f.do(serve, found), &found.Err)
	return Fetched{Blocks: f.fetched, LocalTokens: found.Found.MatchedTokens}, err
}

// Lookup is the engine's Lookup with StoredTokens: how many tokens more would match after a
// Fetch of the prefix. It changes nothing. When ctx ends or the store fails, StoredTokens
// counts what was known to be there by then; others are served meanwhile.
func (s Store) Lookup(ctx context.Context, p messages.Prefix) (messages.Found, error) {
	e := s.engine
	if e.store == nil {
		return messages.Found{}, errNoStore()
	}
	f := newFetch(e, p)
	serve := context.WithoutCancel(ctx)
	length, err := f.reach(ctx, serve)
	if err != nil {
		return messages.Found{}, err
	}
	found := &messages.Lookup{Prefix: p}
	err = first(f.do(serve, found), &found.Err)
	// A lookup matches all tokens but the last, as an admission does, and of an encoder's
	// input all, without the padding.
	limit := len(p.Tokens) - 1
	if len(p.Tokens) == 0 {
		limit = len(p.Encoder)
	}
	reach := min(length*e.validate.TokensPerBlock, limit)
	found.Found.StoredTokens = max(0, reach-found.Found.MatchedTokens)
	return found.Found, err
}

// reach is how many blocks a match would have after the fetch.
//
// It asks the engine twice. The first answer says what no tier has, and the second, with
// what the store has of it, how long a match could get; with Count the second changes
// nothing and no object is read.
func (f *fetch) reach(ctx, serve context.Context) (int, error) {
	if missing, err := f.find(ctx, serve); err != nil || !missing {
		return 0, err
	}
	r := &protocol.Fetch{Prefix: f.prefix, Stored: f.stored, Bytes: f.bytes,
		Weights: f.namespace.Weights, Count: true}
	err := first(f.do(serve, r), &r.Err)
	return r.Length, err
}

// find asks the engine what is missing, and the store what it has of that.
func (f *fetch) find(ctx, serve context.Context) (missing bool, err error) {
	question := &protocol.Fetch{Prefix: f.prefix}
	if err := first(f.do(serve, question), &question.Err); err != nil || question.Missing == nil {
		return false, err
	}
	f.name(question.Missing, question.Weights)
	if ctx.Err() == nil && f.engine.validate.Onboard {
		f.ask(ctx, question.Missing)
	}
	return true, nil
}

// fetchBefore fetches for admissions that ask for it, each for its own time at most. With an
// encoder–decoder model the input of the encoder is fetched beside the prompt.
//
// It returns before the admission is sent, so that no round waits for a store. The fetches
// of one batch run side by side: their times do not add up. An admission that is going to be
// refused does not read the store.
func fetchBefore(ctx context.Context, e *Engine, requests []messages.AdmitRequest) {
	var all sync.WaitGroup
	for i := range requests {
		r := &requests[i]
		if r.Fetch <= 0 || e.store == nil || e.Validate(*r) != nil {
			continue
		}
		prompt := messages.Prefix{
			Namespace: r.Namespace, Tokens: r.Tokens, Multimodal: r.Multimodal, Encoder: r.Encoder,
			EncoderItems: r.EncoderItems,
		}
		prefixes := []messages.Prefix{prompt}
		if len(r.Encoder) > 0 {
			prefixes = append(prefixes, messages.Prefix{Namespace: r.Namespace, Encoder: r.Encoder,
				EncoderItems: r.EncoderItems})
		}
		for _, p := range prefixes {
			all.Go(func() {
				limited, cancel := context.WithTimeout(ctx, r.Fetch)
				defer cancel()
				// the admission says what is wrong with it
				_ = newFetch(e, p).run(limited, context.WithoutCancel(ctx))
			})
		}
	}
	all.Wait()
}

// fetch is one Fetch on its caller's goroutine.
//
// No actor sees it. stored and bytes go to the engine in requests and are read there until
// the answer; between two requests they are the fetch's own again.
type fetch struct {
	engine    *Engine
	client    *guard.Store
	prefix    messages.Prefix
	namespace messages.Namespace // with the key of the encoder's input
	tokens    []messages.Token   // of the blocks
	blocks    []stores.Block     // of the prefix, without their pools
	keys      []stores.BlockKey  // of the blocks
	stored    [][]bool           // [pool][block]: the store has it
	bytes     [][][]byte         // [pool][block]
	fetched   int
}

func newFetch(e *Engine, p messages.Prefix) *fetch {
	return &fetch{engine: e, client: e.store, prefix: p}
}

// run asks the engine what is missing, the store what it has, and brings it in.
//
// Each wait ends with the claim of another fetch, and a claim ends with its fetch, whether
// or not that has read anything.
func (f *fetch) run(ctx, serve context.Context) error {
	for {
		wait, err := f.once(ctx, serve)
		if wait == nil || err != nil {
			return err
		}
		// Another fetch reads some of the same objects: what it brings is asked for again.
		if hooks := &f.engine.settings.FetchWith; hooks.Await != nil {
			hooks.Await(wait)
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// do serves one request of the fetch.
//
// Simulations serve it by a hook, on their own schedule.
func (f *fetch) do(ctx context.Context, r messages.Request) error {
	if hooks := &f.engine.settings.FetchWith; hooks.Serve != nil {
		return hooks.Serve(r)
	}
	return f.engine.Do(ctx, r)
}

// once is one try. It returns what to wait for if another fetch is in the way.
//
// The loop is a conversation: each request carries what was read so far, and the engine
// answers what it still wants, because pages may have been stored or evicted between two of
// them. It ends when nothing is wanted. Every pass either reads wanted objects or marks them
// as not stored, so no object is wanted twice without progress.
func (f *fetch) once(ctx, serve context.Context) (wait <-chan struct{}, err error) {
	if missing, err := f.find(ctx, serve); err != nil || !missing {
		return nil, err
	}
	// What was read stays claimed until the engine has it: another fetch would miss it.
	var claims []func()
	defer func() {
		for _, release := range claims {
			release()
		}
	}()
	for {
		r := &protocol.Fetch{Prefix: f.prefix, Stored: f.stored, Bytes: f.bytes,
			Weights: f.namespace.Weights}
		if err := first(f.do(serve, r), &r.Err); err != nil || r.Wanted == nil {
			f.fetched += r.Fetched
			return nil, err
		}
		release, wait := f.read(ctx, r.Wanted)
		if wait != nil {
			return wait, nil
		}
		claims = append(claims, release)
	}
}

// name computes the keys of the prefix's whole blocks.
//
// A key is a hash over the whole prefix (package stores), so the keys are computed in
// order. The cost is a hash of all tokens, once a fetch, on the caller's goroutine.
func (f *fetch) name(missing [][]bool, weights string) {
	n := len(missing[0])
	tpb := f.engine.validate.TokensPerBlock
	f.namespace, f.tokens = f.engine.validate.StoredAs(&f.prefix)
	f.namespace.Weights = weights // those of this moment
	space, done := f.client.Space(f.namespace)
	defer done()
	covers := protocol.CoversOf(f.prefix.Multimodal, len(f.tokens))
	f.blocks, f.keys = make([]stores.Block, n), make([]stores.BlockKey, n)
	key := space.Root()
	for b := range n {
		block := &f.blocks[b]
		block.Parent, block.Tokens = key, f.tokens[b*tpb:(b+1)*tpb]
		if covers != nil {
			block.Covers = protocol.Covering(covers[b*tpb : (b+1)*tpb])
		}
		key = space.Next(key, block.Tokens, block.Covers)
		f.keys[b] = key
	}
	f.stored, f.bytes = make([][]bool, len(missing)), make([][][]byte, len(missing))
	for p := range missing {
		f.stored[p], f.bytes[p] = make([]bool, n), make([][]byte, n)
	}
}

// object names the page of a block in a pool.
type object struct {
	pool  messages.PoolID
	block int
}

func (f *fetch) key(o object) stores.Key { return f.keys[o.block].Key(o.pool) }

// firstAsk is how many blocks the store is asked about first; each further question is
// about twice as many.
const firstAsk = 16

// ask finds out which missing pages the store has, from the first block on, up to one
// without which no match goes on.
//
// The questions grow so that a prefix which is not in the store costs one small call, and
// a long one that is costs a number of calls that grows with the logarithm of its length, up
// to the store's bound on a batch. An error counts as "not stored": what was found before it
// is still fetched.
func (f *fetch) ask(ctx context.Context, missing [][]bool) {
	size := firstAsk
	for from := 0; from < len(f.keys); {
		to := min(from+min(size, stores.MaxBatch/len(missing)), len(f.keys))
		var objects []object
		var keys []stores.Key
		for b := from; b < to; b++ {
			for p := range missing {
				if missing[p][b] {
					o := object{messages.PoolID(p), b}
					objects, keys = append(objects, o), append(keys, f.key(o))
				}
			}
		}
		var found []bool
		if len(keys) > 0 {
			var err error
			if found, err = f.client.Has(ctx, keys); err != nil {
				return
			}
		}
		for i, o := range objects {
			f.stored[o.pool][o.block] = found[i]
		}
		if f.broken(missing, from, to) {
			return
		}
		from, size = to, 2*size
	}
}

// broken tells whether a pool of full attention has neither a page nor an object of one
// of the blocks.
//
// With full attention a match needs every block, so no longer one exists behind such a
// gap. A pool with a window or with states says nothing: a longer match may not need the
// block.
func (f *fetch) broken(missing [][]bool, from, to int) bool {
	for p := range missing {
		if !f.engine.validate.Pools[p].Full() {
			continue
		}
		for b := from; b < to; b++ {
			if missing[p][b] && !f.stored[p][b] {
				return true
			}
		}
	}
	return false
}

// Stats returns what the engine and its store have exchanged; zeros without a store.
func (s Store) Stats() StoreStats {
	if s.engine.store == nil {
		return StoreStats{}
	}
	return s.engine.store.Stats()
}

// StoreStats counts what an engine and its store have exchanged.
type StoreStats = inspect.StoreStats
