package coordinator

import (
	"math"
	"math/bits"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// thrash finds tokens of prompts that the cache had a short while ago: they were evicted, and
// are wanted again before twice the tokens that the cache holds have come into it. A cache that
// is somewhat larger, or a policy that keeps other contents, would have had them.
//
// It remembers prefixes and not pages, so an eviction costs it nothing: a request that ends
// leaves signatures of what it has stored, and a prompt that has missed something looks for
// its own. Signatures stand at the ends of blocks 1, 2, 4 and so on, then at every 256 tokens
// (protocol.Span), so what is found is up to that much shorter than what was there.
//
// Where a model has states, a prefix is of use only with the state after it: those with a
// checkpoint have one more signature, at the end of their last whole block.
//
// The memory is a table of buckets whose oldest signature makes room. It grows only with the
// pools.
type thrash struct {
	span        protocol.Span
	blockTokens int
	horizon     int64          // tokens, twice what the largest pool holds in both tiers
	noted       int64          // tokens of prefixes that were noted and not remembered
	table       [][ways]prefix // the number is a power of two; empty: nothing is remembered

	// report is told once; nil: no one is, any more. requests, prompt and thrashed count the
	// requests of a period and their tokens.
	report                     func(Thrash)
	requests, prompt, thrashed int
}

// Thrash says what part of the prompts of some requests the cache had a short while ago.
type Thrash struct{ Requests, PromptTokens, ThrashTokens int }

// A report is due when a tenth of the prompt tokens of so many requests in a row is thrash.
const (
	thrashPeriod = 256
	thrashShare  = 10
)

// prefix is the signature of a prefix, and when it was in the cache last, by thrash.noted; the
// zero value is none.
type prefix struct {
	signature uint64
	at        int64
}

// ways is the number of signatures of a bucket. With at most two of the horizon for each bucket
// on average, one in twenty of the oldest is lost.
const ways = 4

// shortPrefixes is up to how many blocks of the horizon may have signatures of their own:
// prompts of few blocks have more signatures than one for 256 tokens.
const shortPrefixes = 1 << 13

func newThrash(c *Config) *thrash {
	if !c.Reuse {
		return &thrash{} // the cache never has anything
	}
	t := &thrash{span: protocol.SpanOf(c.TokensPerBlock), blockTokens: c.TokensPerBlock,
		report: c.OnThrash}
	t.resize(c)
	return t
}

// resize follows the counts of the pools. A larger table begins empty.
func (t *thrash) resize(c *Config) {
	if t.span == 0 {
		return
	}
	blocks := 0
	for p := range c.tokenPools() {
		blocks = max(blocks, 2*(c.Counts[p].Primary+c.Counts[p].Secondary))
	}
	t.horizon = int64(blocks * c.TokensPerBlock)
	if c.tokenPools() == 0 {
		// How many tokens a state stands for is not known: what the table has room for is recent.
		for p := range c.selfPools() {
			blocks = max(blocks, 2*(c.Counts[p].Primary+c.Counts[p].Secondary))
		}
		t.horizon = math.MaxInt64
	}
	signatures := max(min(blocks, shortPrefixes), blocks/int(t.span))
	if n := 1 << bits.Len(uint(signatures/2)); n > len(t.table) {
		t.table = make([][ways]prefix, n)
	}
}

// note remembers that a prefix is in the cache.
func (t *thrash) note(space *messages.Namespace, tokens []messages.Token) {
	if len(t.table) == 0 {
		return
	}
	signer := signer{hash: signatureOf(space)}
	for k := range t.span.Signatures(len(tokens) / t.blockTokens) {
		added := signer.sign(tokens[:t.endOf(k)])
		x := t.find(signer.hash)
		if x.signature != signer.hash || !t.recent(x) {
			t.noted += int64(added)
		}
		*x = prefix{signer.hash, t.noted}
	}
}

// known is how many tokens of a prompt have been in the cache within the horizon.
func (t *thrash) known(space *messages.Namespace, tokens []messages.Token) (known int) {
	signer := signer{hash: signatureOf(space)}
	for k := range t.span.Signatures(len(tokens) / t.blockTokens) {
		signer.sign(tokens[:t.endOf(k)])
		if x := t.find(signer.hash); x.signature == signer.hash && t.recent(x) {
			known = t.endOf(k)
		}
	}
	return known
}

// noteState remembers that the cache has the state after a prefix.
func (t *thrash) noteState(space *messages.Namespace, tokens []messages.Token) {
	if len(t.table) == 0 {
		return
	}
	signer := signer{hash: signatureOf(space) ^ ofStates}
	for end := t.blockTokens; end <= len(tokens); end += t.blockTokens {
		signer.sign(tokens[:end])
	}
	*t.find(signer.hash) = prefix{signer.hash, t.noted}
}

// knownStates are the longest prefixes of a prompt whose states the cache has had within the
// horizon: of at most so many tokens, and of any length.
func (t *thrash) knownStates(
	space *messages.Namespace, tokens []messages.Token, most int,
) (short, long int) {
	signer := signer{hash: signatureOf(space) ^ ofStates}
	for end := t.blockTokens; end <= len(tokens) && len(t.table) > 0; end += t.blockTokens {
		signer.sign(tokens[:end])
		if x := t.find(signer.hash); x.signature != signer.hash || !t.recent(x) {
			continue
		}
		if long = end; end <= most {
			short = end
		}
	}
	return short, long
}

// count counts the prompt of a request, and reports the first period in which much was thrash.
func (t *thrash) count(prompt, thrashed int) {
	t.requests, t.prompt, t.thrashed = t.requests+1, t.prompt+prompt, t.thrashed+thrashed
	if t.requests < thrashPeriod {
		return
	}
	if t.report != nil && t.thrashed*thrashShare >= t.prompt {
		t.report(Thrash{t.requests, t.prompt, t.thrashed})
		t.report = nil
	}
	t.requests, t.prompt, t.thrashed = 0, 0, 0
}

// forget forgets all: what hosts have the engine forget was not evicted.
func (t *thrash) forget() { clear(t.table) }

// endOf is where the prefix of a signature ends.
func (t *thrash) endOf(k int) int { return (t.span.Block(k) + 1) * t.blockTokens }

// recent tells whether a prefix was in the cache within the horizon.
func (t *thrash) recent(x *prefix) bool { return t.noted-x.at <= t.horizon }

// find is the place of a signature: where it is, or else that of the oldest of its bucket.
func (t *thrash) find(signature uint64) *prefix {
	bucket := &t.table[signature&uint64(len(t.table)-1)]
	oldest := &bucket[0]
	for i := range bucket {
		x := &bucket[i]
		if x.signature == signature {
			return x
		}
		if x.at < oldest.at {
			oldest = x
		}
	}
	return oldest
}

// signer makes the signatures of a prompt, each a hash of all tokens up to an end.
type signer struct {
	hash uint64
	read int // tokens
}

// sign goes on to the end of the tokens and returns how many have come.
func (s *signer) sign(tokens []messages.Token) (added int) {
	added = len(tokens) - s.read
	rest, h := tokens[s.read:], s.hash
	// Only one of the two products waits for those before.
	for ; len(rest) >= 8; rest = rest[8:] {
		h = multiplied(pair(rest[0], rest[1])^odd1, pair(rest[2], rest[3])^h) ^
			multiplied(pair(rest[4], rest[5])^odd2, pair(rest[6], rest[7])^odd3)
	}
	for _, token := range rest {
		h = multiplied(uint64(uint32(token))^odd1, h)
	}
	// No signature is 0, and the table is addressed by the lowest bits.
	s.hash, s.read = mix(h)|1<<63, len(tokens)
	return added
}

// Numbers without a pattern, which keep products of small tokens apart.
const (
	odd1 = 0xd6e8feb86659fd93
	odd2 = 0xa0761d6478bd642f
	odd3 = 0xe7037ed1a0b428db
	// ofStates tells signatures of states from those of blocks.
	ofStates = 0xa24baed4963ee407
)

func pair(a, b messages.Token) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// multiplied folds the product of two numbers into one.
func multiplied(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// signatureOf is the signature of a namespace before its first token.
func signatureOf(space *messages.Namespace) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	if space.HasLoRA {
		h++
	}
	for _, name := range []string{space.Salt, space.LoRA, space.Encoder, space.Weights} {
		h = hashString(h, name)
	}
	return h
}
