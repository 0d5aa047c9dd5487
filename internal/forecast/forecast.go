package forecast

import (
	"math"
	"math/bits"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// Request is what the policy is told of a request when it releases its pages.
type Request struct {
	protocol.RequestFacts
	Released time.Duration // when it released its pages
	Cached   int           // leading blocks that the pool had cached at admission
}

// Run is a piece on the path of a request: it begins at block From, has been used Uses
// times, and the piece in front of it Front times, 0 if there is none. Last marks the
// piece that is the last block of the prompt alone.
type Run struct {
	From        int32
	Uses, Front uint8
	Last        bool
}

// Policy is the forecasting policy of one pool: it predicts when a piece will be used
// again and says what it is worth to keep it until then. Its state is bounded by the
// capacity that it was made with.
type Policy struct {
	model    *model
	watch    watch
	sessions sessions
	guard    guard
	random   generator
	requests int64
	span     protocol.Span
	doubles  float64 // blocks, see CountWork; 0: all blocks take the same work
	clock    clock
	waits    waits

	// in a pool of states, where beside it only the clock and the waits are used; else nil
	checkpoints *checkpoints

	session session  // of the current request
	current Features // that all pieces of the current request have
}

// Lengths of the history: what a policy of n pages watches, and the sessions that it knows.
// Small caches are limited by what is known of their requests.
const (
	leastWatched = 2048
	mostWatched  = 4096
	watchShare   = 0.15 // of the pages, between leastWatched and mostWatched
	// of the pages, if that is more: large pools learn from one request in settledEvery
	settledShare  = 1.0 / 48
	leastSessions = 2048
	sessionShare  = 1.0 / 7 // of the pages
)

// New makes a policy for a number of blocks, of which requests have signatures by a span. The
// seed decides which blocks are sampled; equal seeds and equal requests give equal decisions.
//
// The history counts signatures, not blocks: of shorter blocks as many tokens are remembered.
func New(blocks int, span protocol.Span, seed uint64) *Policy {
	pages := float64((blocks + int(span) - 1) / int(span))
	watched := max(leastWatched, min(mostWatched, int(watchShare*pages)), int(settledShare*pages))
	return &Policy{
		model:    newModel(),
		watch:    newWatch(watched),
		sessions: newSessions(max(leastSessions, int(sessionShare*pages))),
		guard:    newGuard(blocks, span),
		random:   generator{seed},
		span:     span,
	}
}

// Begin takes in a request that releases its pages. The blocks that it has used teach
// the model, its session continues, and Piece then describes its pieces.
func (p *Policy) Begin(r *Request) {
	p.EndRequest(r)
	prompt := p.span.Signatures(r.Prompt)
	p.guard.request(r)
	arrived := p.clock.at(r.Arrived)
	p.watch.see(p.model, r.Signatures, arrived)
	session, known := p.sessions.continued(r.Signatures[:prompt], arrived)
	p.session = session
	added := uint8(0)
	if p.session.turn == 0 {
		// What comes back from host memory is not new to the traffic, though it is to the pool.
		known = max(r.Cached, min(r.Found, r.Prompt))
	} else {
		known = p.span.Block(known-1) + 1
		added = max(1, logFeature(2*(r.Tokens-p.session.tokens), featureAdded))
	}
	p.session.tokens = r.Tokens + r.Answer
	v := &p.current.Values
	*v = [featureCount]uint8{}
	v[featureAdded] = added
	v[featureNew] = logFeature(r.Prompt-known, featureNew)
	v[featureAnswer] = logFeature(r.Answer/8, featureAnswer)
	v[featurePace] = paceFeature(p.session.pace)
	v[featureReply] = replyFeature(p.session.turn, r.Answer)
	if p.teaches() {
		p.watch.sweep(p.model, p.clock.now)
		p.model.refresh()
	}
}

// A policy learns from every request at first, and from one in settledEvery after settledFrom
// requests: what it knows then changes slowly, and learning was half of its time. The blocks
// under watch are swept as slowly then as new ones are added. Computing rows of the value table
// only for every 32nd request was rejected: with settledFrom = 2,500, so that the traces of
// docs/policies.md show it, the mean share is 0.6 points lower, and the same with the sweeps of
// every eighth.
const (
	settledFrom  = 8192
	settledEvery = 8
)

// teaches tells whether the policy learns from the current request.
func (p *Policy) teaches() bool { return p.requests < settledFrom || p.requests%settledEvery == 0 }

// Piece describes a piece of the current request, for Value.
func (p *Policy) Piece(r Run) Features {
	f := p.current
	f.Values[featureUses], f.Values[featureFront] = min(r.Uses, 9), min(r.Front, 9)
	if r.Last {
		f.Values[featureLast] = 1
	}
	return f
}

// Draw draws a block of the prompt of the current request, from block from on, for Watch, and
// tells whether there is one. It comes before End. The caller does not call it for a path
// without pieces.
//
// The last block is not drawn. It is often partial, or filled up by the next request of the
// session, and then never used again: among the others it would teach that all blocks behind
// the same features are worth less. It has a feature and a sample of its own.
func (p *Policy) Draw(r *Request, from int) (block int, ok bool) {
	limit := min(r.Prompt, r.Blocks-1)
	if !p.teaches() || from >= limit || p.span.Signatures(from) == p.span.Signatures(limit) {
		return 0, false
	}
	// The next block that has a signature, or else the one before.
	next := min(p.span.Signatures(from+p.random.below(limit-from)), p.span.Signatures(limit)-1)
	return p.span.Block(next), true
}

// Watch puts a block under watch with the features of its piece, and returns its signature, 0
// if it is not watched: a block that Draw drew, or in End the last one.
func (p *Policy) Watch(r *Request, run Run, block int) uint64 {
	f, signature := p.Piece(run), r.Signatures[p.span.Signatures(block)]
	if !p.watch.add(signature, f, p.model.predict(&f).scale, p.clock.now) {
		return 0
	}
	return signature
}

// End ends the current request, whose path has a last piece and one in front; of one piece
// front and last are the same. The end of the prompt is noted for the next request of the
// session, and the last block of some prompts is put under watch.
func (p *Policy) End(r *Request, front, last Run) {
	if r.Prompt == 0 {
		return
	}
	// Few last blocks have a signature if the span is long, so of these more are watched.
	if block := int(last.From); p.teaches() && last.Last && block == r.Blocks-1 && p.signed(block) &&
		p.random.below(max(1, lastEvery/int(p.span))) == 0 {
		p.Watch(r, last, block)
	}
	p.endSession(r, front)
}

// lastEvery is how many requests there are for each last block that is put under watch. One
// weight learns from these, so few are enough, and the list is left to the others.
const lastEvery = 4

// signed tells whether a signature ends with a block.
func (p *Policy) signed(block int) bool {
	return p.span.Signatures(block) < p.span.Signatures(block+1)
}

// endSession notes the end of the prompt with the gap that is expected of the piece in
// front of the last block.
//
// The last block of a prompt is often partial, or filled up, and then the next prompt
// of the session does not run over it. So the block before it marks the end.
func (p *Policy) endSession(r *Request, front Run) {
	f := p.Piece(front)
	p.session.scale, p.session.time = p.model.predict(&f).scale, p.clock.now
	p.sessions.end(r.Signatures[p.span.Signatures(max(1, r.Prompt-1))-1], p.session)
}

// Supersede changes the features of a piece: another prompt has branched off in front of it,
// and nothing else did before. Watched is the signature of the watched block of the piece, if
// any.
func (p *Policy) Supersede(f Features, watched uint64) Features {
	p.watch.supersede(watched)
	f.Values[featureSuperseded] = 1
	return f
}

// Value is what it is worth to keep a piece with these features, whose last use was at
// the given time of Now: expected hits for each block and second.
//
// It is computed by what the model knows now. A prediction that is made once, at the use,
// was rejected: most pieces of a large cache would keep what the model said in its first minutes.
func (p *Policy) Value(f Features, last int64) float64 { return math.Exp(p.logValue(&f, last)) }

// logValue is ln of the value.
func (p *Policy) logValue(f *Features, last int64) float64 {
	if p.checkpoints != nil {
		return p.checkpoints.logValue(f, p.clock.now-last)
	}
	return p.model.logValue(p.model.predict(f), p.clock.now-last)
}

// Rank orders pieces: a number that is the greater the more a piece is worth whose next victim
// is the block at a depth. Awaited pieces are worth more than all others, and among them those
// more whose latest wait began later. Ranks are equal apart from that while plain LRU decides,
// so that the last use does.
func (p *Policy) Rank(f Features, last int64, depth int32) int32 {
	if f.Wait != 0 && p.waits.lasts(f.Wait) {
		return awaitedRank + p.waits.order(f.Wait)
	}
	if p.PlainLRU() {
		return 0
	}
	x := p.logValue(&f, last)
	if p.doubles > 0 && p.checkpoints == nil {
		x += math.Log(1+float64(depth)/p.doubles) / 2
	}
	return int32(x * unit)
}

// unit is what ranks count in: parts of the logarithm of a value.
const unit = 1 << 16

// CountWork makes the policy value blocks by the work that a hit saves. Computing a block takes
// longer the deeper it is, since it attends to all blocks in front: at a depth of so many
// blocks twice as long as the first one.
//
// A hit of a deep block is worth the root of that. With the whole of it less is saved on the
// conversation trace of docs/policies.md, and more on the synthetic one up to 2,000 pages: a
// deep block serves nobody without those in front, which then are evicted for it.
func (p *Policy) CountWork(doubles float64) { p.doubles = doubles }

// Advance moves the clock of the policy, which never goes back.
func (p *Policy) Advance(now time.Duration) { p.clock.advance(now) }

// Now is the clock of the policy in milliseconds.
func (p *Policy) Now() int64 { return p.clock.now }

// PlainLRU tells whether the guard has found LRU better for this traffic, so that
// victims are to be chosen by their last use for the time being.
func (p *Policy) PlainLRU() bool { return p.guard.active() }

// millis is a time in the unit of the policy's clock.
func millis(t time.Duration) int64 { return int64(t / time.Millisecond) }

// generator is a splitmix64 sequence.
type generator struct{ state uint64 }

func (g *generator) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	x := g.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below draws a number in [0, n). The high half of a product does it without a division; its
// bias is below 2⁻³⁰ for sets of pieces.
func (g *generator) below(n int) int {
	high, _ := bits.Mul64(g.next(), uint64(n))
	return int(high)
}
