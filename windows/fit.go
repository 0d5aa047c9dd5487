package windows

import (
	"fmt"
	"slices"
)

// Fit says how many sequences of one length a set of pools holds at a time.
type Fit struct {
	Tokens    int    // length of each sequence
	Sequences int    // how many fit
	Pool      string // the pool that allows no more of them, the first in order on a tie
}

// FitOf returns how many sequences of so many tokens fit into the pages at a
// time, while they decode: each takes Need pages of every pool. Sequences that
// share a prefix share its pages, so more of them may fit. The pools and their
// counts are in the same order.
func FitOf(pools []Pool, counts []PageCounts, tokens int) Fit {
	f := Fit{Tokens: tokens}
	for i, p := range pools {
		if n := counts[i].Primary / max(1, p.Need(tokens)); i == 0 || n < f.Sequences {
			f.Sequences, f.Pool = n, p.Name
		}
	}
	return f
}

// LongestPrompt is the length of the longest prompt that can be admitted
// without chunks, and the pool that allows no longer one. Until it is computed,
// such a prompt holds pages for all its blocks in every attention pool, also in
// those with limited windows.
func LongestPrompt(pools []Pool, counts []PageCounts) Fit {
	f := Fit{Sequences: 1}
	for i, p := range pools {
		if n := counts[i].Primary * p.TokensPerBlock; p.Kind == KindAttention &&
			(f.Pool == "" || n < f.Tokens) {
			f.Tokens, f.Pool = n, p.Name
		}
	}
	return f
}

// Fractions returns pool_fractions that serve sequences of several lengths. By
// need alone, memory is split for one length. If most sequences are shorter, a
// pool with a limited window, of which every sequence takes the same few pages,
// runs out while full attention has pages left.
//
// Each pool gets the largest part that it would get for any one of the lengths,
// in proportion. The parts for one length sum to 1, so those of k lengths to at
// most k: sequences of each length get at least 1/k of the number that a split
// for that length alone would give them, but for rounding to pages. Lengths are 1
// or more; the pools are those of Pools.
func Fractions(pools []Pool, tokens int, others ...int) map[string]float64 {
	parts := make([]float64, len(pools))
	for _, n := range append([]int{tokens}, others...) {
		total := 0.0
		for _, p := range pools {
			total += p.bytesOf(n)
		}
		for i, p := range pools {
			parts[i] = max(parts[i], p.bytesOf(n)/total)
		}
	}
	sum := 0.0
	for _, part := range parts {
		sum += part
	}
	fractions := make(map[string]float64, len(pools))
	for i, p := range pools {
		fractions[p.Name] = parts[i] / sum
	}
	return fractions
}

// ForMixedLengths returns the configuration with pool_fractions for the longest sequences
// and for those of 1,024 tokens, see Fractions, if the model has pools whose need does not
// grow with the length, limited windows or recurrent states, and if the configuration
// leaves the split open. Any other configuration comes back as it is, and so does one that
// is invalid.
//
// By itself such a configuration is split for sequences of max_seq_len, of which a limited
// pool needs a few pages in thousands: few sequences of any length fit then. With these
// fractions at least half as many longest sequences fit as by need, and half as many short
// ones as with expected_seq_len 1024; three eighths where recurrent states have checkpoints, which
// get a quarter of the memory at least.
func (c Config) ForMixedLengths(m Model) Config {
	if c.ExpectedSeqLen > 0 || c.PoolFractions != nil || c.Validate(m) != nil {
		return c
	}
	pools, err := Pools(m, c)
	if err != nil ||
		!slices.ContainsFunc(pools, func(p Pool) bool { return p.Kind == KindState || !p.Full() }) {
		return c
	}
	c.PoolFractions = withCheckpoints(pools, Fractions(pools, m.MaxSeqLen,
		min(ShortSequence, m.MaxSeqLen)))
	return c
}

// checkpointShare is the least part of memory for states if blocks have checkpoints. A sequence
// needs one checkpoint to run, but the cache needs one for each prompt that it keeps: without a
// checkpoint no attention is reused. A quarter is near the best on the workloads of
// docs/policies.md.
const checkpointShare = 1.0 / 4

// withCheckpoints raises the parts of state pools to checkpointShare.
func withCheckpoints(pools []Pool, fractions map[string]float64) map[string]float64 {
	states := 0.0
	for _, p := range pools {
		if p.Kind == KindState && p.Checkpoints {
			states += fractions[p.Name]
		}
	}
	if states == 0 || states >= checkpointShare {
		return fractions
	}
	for _, p := range pools {
		if p.Kind == KindState && p.Checkpoints {
			fractions[p.Name] *= checkpointShare / states
		} else {
			fractions[p.Name] *= (1 - checkpointShare) / (1 - states)
		}
	}
	return fractions
}

// bytesOf is the memory that a sequence takes in the pool.
func (p Pool) bytesOf(tokens int) float64 {
	return float64(p.Need(tokens)) * float64(p.PageBytes())
}

// ShortSequence is the length in tokens, about that of a chat, that ForMixedLengths and Warnings
// look at beside the longest.
const ShortSequence = 1024

// Warnings lists what a host should know about a configuration and a split that are valid: each
// entry is a sentence with numbers.
//
// With expected_seq_len max_seq_len, which a script has by default, limited pools get few pages:
// those of GPT-OSS-20B in 16 GiB get 24 of its window of 128, enough for four sequences of any
// length, where a split for 1024 tokens would hold 531. Engines and plans take ForMixedLengths.
func Warnings(pools []Pool, m Model, c Config, counts []PageCounts) []string {
	ws := c.optionWarnings(pools)
	if w := promptWarning(pools, m, counts); w != "" {
		ws = append(ws, w)
	}
	short := min(ShortSequence, m.MaxSeqLen)
	if c.ExpectedSeqLen > 0 && c.ExpectedSeqLen < m.MaxSeqLen || c.PoolFractions != nil {
		return ws
	}
	now, then := FitOf(pools, counts, short), 0
	bytes := int64(0)
	for i, p := range pools {
		bytes += int64(counts[i].Primary) * p.PageBytes()
	}
	c.ExpectedSeqLen = short
	if pages, err := Divide(pools, m, c, bytes); err == nil {
		shorter := make([]PageCounts, len(pages))
		for i, n := range pages {
			shorter[i].Primary = n
		}
		then = FitOf(pools, shorter, short).Sequences
	}
	if then >= 2*max(1, now.Sequences) {
		ws = append(ws,
			fmt.Sprintf(
				"expected_seq_len is max_seq_len, %d: %d sequences of %d tokens fit, limited by pool %s; "+
					"with expected_seq_len %d %d would fit",
				m.MaxSeqLen, now.Sequences, short, now.Pool, short, then))
	}
	return ws
}

// optionWarnings names options that do nothing, or that other servers have dropped.
func (c Config) optionWarnings(pools []Pool) (ws []string) {
	if w := c.UnusedHostCache(); w != "" {
		ws = append(ws, w)
	}
	limited := slices.ContainsFunc(pools, func(p Pool) bool { return p.Window > 0 })
	switch n := c.SinkTokenLength; {
	case n > 0 && limited:
		ws = append(ws, fmt.Sprintf("sink_token_length %d: TensorRT-LLM has dropped this option; "+
			"here the tokens are kept beside those of the window", n))
	case n > 0:
		ws = append(ws, fmt.Sprintf("sink_token_length %d has no effect: no layer has a window", n))
	}
	return ws
}

// UnusedHostCache says which option makes host_cache_size useless. It is empty if none does, or
// if there is no host memory.
func (c Config) UnusedHostCache() string {
	switch {
	case c.HostCacheSize == 0:
		return ""
	case !c.EnableBlockReuse:
		return fmt.Sprintf("host_cache_size %d without enable_block_reuse: "+
			"nothing is stored, so nothing is offloaded", c.HostCacheSize)
	case !c.OnboardBlocks:
		return fmt.Sprintf("host_cache_size %d without onboard_blocks: "+
			"nothing would come back, so nothing is offloaded", c.HostCacheSize)
	default:
		return ""
	}
}

// promptWarning says that the longest prompt does not fit, and whether chunks help: a limited pool
// takes the pages of a chunk, a full one those of the whole prompt.
func promptWarning(pools []Pool, m Model, counts []PageCounts) string {
	prompt := LongestPrompt(pools, counts)
	if prompt.Pool == "" || prompt.Tokens >= m.MaxSeqLen {
		return ""
	}
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == prompt.Pool })
	if pools[i].Full() || pools[i].Need(m.MaxSeqLen) > counts[i].Primary {
		return fmt.Sprintf("pool %s holds %d tokens: longer prompts are refused", prompt.Pool,
			prompt.Tokens)
	}
	return fmt.Sprintf("pool %s holds %d tokens: longer prompts must be admitted in chunks",
		prompt.Pool, prompt.Tokens)
}
