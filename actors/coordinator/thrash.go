package coordinator

import (
	"maps"
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// thrash finds tokens of prompts that the cache had a short while ago: they were evicted, and
// are wanted again before some two times the tokens that the cache holds have come into it. A cache
// that is somewhat larger, or a policy that keeps other contents, would have had them.
//
// It remembers prefixes and not pages, so an eviction costs it nothing: a request that ends
// leaves signatures of what it has stored, and a prompt that has missed something looks for
// its own. Signatures stand at the ends of blocks 1, 2, 3, 4, 6, 8, 11 and so on, each a quarter
// behind the one before, and at the last whole block; so what is found is up to a fifth shorter
// than what was there. They cover all of the first 64 tokens and one in 32 of the others, so
// prefixes that differ in few tokens may be taken for each other. When as much has come as the
// cache holds, the signatures of a generation are complete, and those of three generations before
// are forgotten.
//
// Where a model has states, a prefix is of use only with the state after it: only those with a
// checkpoint are remembered, to the end of their last whole block.
type thrash struct {
	blockTokens int // 0: nothing is remembered, since nothing is reused
	states      bool
	// of a generation: what the largest pool holds in both tiers, in tokens or states
	room       int64
	noted      int64 // of this, what has come since the generation began
	generation int
	seen       map[uint64]int // by signature, the generation in which it was noted last

	// report is told once; nil: no one is, any more. requests, prompt and thrashed count the
	// requests of a period and their tokens.
	report                     func(Thrash)
	requests, prompt, thrashed int
}

// Thrash says what part of the prompts of some requests the cache had a short while ago.
type Thrash struct{ Requests, PromptTokens, ThrashTokens int }

// keptGenerations is how many generations are remembered.
const keptGenerations = 3

// A report is due when a tenth of the prompt tokens of so many requests in a row is thrash.
const (
	thrashPeriod = 256
	thrashShare  = 10
)

func newThrash(c *Config) *thrash {
	if !c.Reuse {
		return &thrash{} // the cache never has anything
	}
	t := &thrash{blockTokens: c.TokensPerBlock, states: c.recurrent(), report: c.OnThrash,
		seen: map[uint64]int{}}
	t.resize(c)
	return t
}

// resize follows the counts of the pools.
func (t *thrash) resize(c *Config) {
	pools, each := c.Counts[:c.tokenPools()], t.blockTokens
	if t.states {
		// A prompt leaves up to two checkpoints, and the next turn of its conversation wants one.
		pools, each = c.Counts[c.tokenPools():c.selfPools()], 2
	}
	t.room = 0
	for _, n := range pools {
		t.room = max(t.room, int64((n.Primary+n.Secondary)*each))
	}
}

// note remembers that a prefix is in the cache; where a model has states, that its state is.
func (t *thrash) note(space *messages.Namespace, tokens []messages.Token) {
	h, begin := signatureOf(space), 0
	for end := t.next(0, tokens); end > begin; end = t.next(end, tokens) {
		h = skim(h, tokens, begin, end)
		added := end - begin
		begin = end
		if t.states {
			added = 1
			if t.next(end, tokens) > end {
				continue
			}
		}
		before := len(t.seen)
		if t.seen[h] = t.generation; len(t.seen) > before {
			t.noted += int64(added)
		}
	}
	if t.noted > t.room {
		t.generation, t.noted = t.generation+1, 0
		maps.DeleteFunc(t.seen, func(_ uint64, g int) bool { return g <= t.generation-keptGenerations })
	}
}

// known is how many tokens of a prompt the cache has had a short while ago: of at most so many,
// and in all. Without states it stops at the first signature that it doesn't find, so a new prompt
// costs little.
func (t *thrash) known(
	space *messages.Namespace, tokens []messages.Token, most int,
) (short, long int) {
	h, begin := signatureOf(space), 0
	for end := t.next(0, tokens); end > begin; end = t.next(end, tokens) {
		h = skim(h, tokens, begin, end)
		begin = end
		_, has := t.seen[h]
		switch {
		case has:
			if long = end; end <= most {
				short = end
			}
		case !t.states:
			return short, long
		}
	}
	return short, long
}

// next is where the signature behind the one at an end of a prompt stands; the end itself if it is
// the last. A checkpoint may end at any block.
func (t *thrash) next(end int, tokens []messages.Token) int {
	if t.blockTokens == 0 {
		return end
	}
	n := end / t.blockTokens
	ahead := 1 + n/4
	if t.states {
		ahead = 1
	}
	return min(n+ahead, len(tokens)/t.blockTokens) * t.blockTokens
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
func (t *thrash) forget() { clear(t.seen) }

// Of tokens behind the first densePart one in sparseness is in a signature.
const (
	densePart  = 64
	sparseness = 32
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
	return mix(hash^uint64(end)) | 1<<63 // no signature is 0
}

// odd has no pattern, and keeps products of small tokens apart.
const odd = 0xd6e8feb86659fd93

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
