package coordinator

import (
	"math"
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// thrash finds tokens of prompts that the cache had a short while ago: they were evicted, and
// are wanted again before twice the tokens that the cache holds have come into it. A cache that
// is somewhat larger, or a policy that keeps other contents, would have had them.
//
// It remembers prefixes and not pages, so an eviction costs it nothing: a request that ends
// leaves signatures of what it has stored, and a prompt that has missed something looks for
// its own. Signatures stand at the ends of blocks 1, 2, 3, 4, 6, 8, 11 and so on, each a quarter
// behind the one before, and at the last whole block; so what is found is up to a fifth shorter
// than what was there. They cover all of the first 256 tokens and one in eight of the others: a
// part of what they cost, and prefixes that differ in few tokens may be taken for each other.
//
// Where a model has states, a prefix is of use only with the state after it: those with a
// checkpoint have one more signature, at the end of their last whole block.
//
// The memory is a table of buckets whose oldest signature makes room. It grows only with the
// pools.
type thrash struct {
	blockTokens int            // 0: nothing is remembered
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

// signatureGap is how many tokens prompts have for each signature, roughly.
const signatureGap = 256

// shortPrefixes is up to how many blocks of the horizon may have signatures of their own:
// prompts of few blocks have more signatures than one for 256 tokens.
const shortPrefixes = 1 << 13

func newThrash(c *Config) *thrash {
	if !c.Reuse {
		return &thrash{} // the cache never has anything
	}
	t := &thrash{blockTokens: c.TokensPerBlock, report: c.OnThrash}
	t.resize(c)
	return t
}

// resize follows the counts of the pools. A larger table begins empty.
func (t *thrash) resize(c *Config) {
	if t.blockTokens == 0 {
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
	signatures := max(min(blocks, shortPrefixes), blocks/max(1, signatureGap/t.blockTokens))
	if n := 1 << bits.Len(uint(signatures/2)); n > len(t.table) {
		t.table = make([][ways]prefix, n)
	}
}

// note remembers that a prefix is in the cache.
func (t *thrash) note(space *messages.Namespace, tokens []messages.Token) {
	if len(t.table) == 0 {
		return
	}
	hash, begin := signatureOf(space), 0
	for end := t.next(0, tokens); end > begin; end = t.next(end, tokens) {
		hash = skim(hash, tokens, begin, end)
		x := t.find(hash)
		if !t.has(x, hash) {
			t.noted += int64(end - begin)
		}
		*x, begin = prefix{hash, t.noted}, end
	}
}

// known is how many tokens of a prompt have been in the cache within the horizon. It stops at
// the first signature that it doesn't find, so a new prompt costs little.
func (t *thrash) known(space *messages.Namespace, tokens []messages.Token) (known int) {
	hash := signatureOf(space)
	for end := t.next(0, tokens); end > known && len(t.table) > 0; end = t.next(end, tokens) {
		if hash = skim(hash, tokens, known, end); !t.has(t.find(hash), hash) {
			break
		}
		known = end
	}
	return known
}

// next is where the signature behind the one at an end of a prompt stands; the end itself if it is
// the last.
func (t *thrash) next(end int, tokens []messages.Token) int {
	if t.blockTokens == 0 {
		return end
	}
	n := end / t.blockTokens
	return min(n+1+n/4, len(tokens)/t.blockTokens) * t.blockTokens
}

// noteState remembers that the cache has the state after a prefix.
func (t *thrash) noteState(space *messages.Namespace, tokens []messages.Token) {
	if len(t.table) == 0 {
		return
	}
	hash := signatureOf(space) ^ ofStates
	for end := t.blockTokens; end <= len(tokens); end += t.blockTokens {
		hash = skim(hash, tokens, end-t.blockTokens, end)
	}
	*t.find(hash) = prefix{hash, t.noted}
}

// knownStates are the longest prefixes of a prompt whose states the cache has had within the
// horizon: of at most so many tokens, and of any length.
func (t *thrash) knownStates(
	space *messages.Namespace, tokens []messages.Token, most int,
) (short, long int) {
	hash := signatureOf(space) ^ ofStates
	for end := t.blockTokens; end <= len(tokens) && len(t.table) > 0; end += t.blockTokens {
		if hash = skim(hash, tokens, end-t.blockTokens, end); !t.has(t.find(hash), hash) {
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

// has tells whether a place has a signature that was in the cache within the horizon.
func (t *thrash) has(x *prefix, signature uint64) bool {
	return x.signature == signature && t.noted-x.at <= t.horizon
}

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

// Of tokens behind the first densePart one in sparseness is in a signature.
const (
	densePart  = 256
	sparseness = 8
)

// skim goes on with the signature of a prefix from one end to the next, which is at a block
// boundary.
func skim(hash uint64, tokens []messages.Token, begin, end int) uint64 {
	for i := begin; i < end; {
		hash = multiplied(uint64(uint32(tokens[i]))^odd, hash)
		if i++; i >= densePart {
			i = (i + sparseness - 1) / sparseness * sparseness
		}
	}
	// No signature is 0, and the table is addressed by the lowest bits.
	return mix(hash^uint64(end)) | 1<<63
}

const (
	odd = 0xd6e8feb86659fd93 // has no pattern, and keeps products of small tokens apart
	// ofStates tells signatures of states from those of blocks.
	ofStates = 0xa24baed4963ee407
)

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
