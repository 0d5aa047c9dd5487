package oracle_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// drawPrompt draws the beginning of something seen before and a new rest: what
// is random alone hardly ever matches.
func (r *run) drawPrompt(t *rapid.T) messages.Prefix {
	var q messages.Prefix
	if len(r.seen) > 0 && mostly(t, "continue") {
		q = rapid.SampledFrom(r.seen).Draw(t, "seen")
		q = cut(q, rapid.IntRange(0, len(q.Tokens)).Draw(t, "keep"))
	} else {
		q.Namespace = r.drawNamespace(t)
	}
	room := max(1, min(r.config.MaxSeqLen, 6*r.config.TokensPerBlock)-len(q.Tokens))
	fewest := 0
	if len(q.Tokens) == 0 {
		fewest = 1
	}
	start := len(q.Tokens)
	rest := drawTokens(t, fewest, max(fewest, rapid.SampledFrom([]int{1, 3, room}).Draw(t, "most")))
	q.Tokens = append(append([]messages.Token(nil), q.Tokens...), rest...)
	if len(rest) > 0 && rarely(t, "item") {
		item := messages.MultimodalItem{Start: start, Length: rapid.IntRange(1, len(rest)).Draw(t,
			"item length")}
		item.Hash[0] = byte(rapid.IntRange(1, 2).Draw(t, "item hash"))
		q.Multimodal = append(append([]messages.MultimodalItem(nil), q.Multimodal...), item)
	}
	return q
}

// drawKnown draws what a request about stored blocks asks for: mostly the
// beginning of something seen before, as it is.
func (r *run) drawKnown(t *rapid.T) messages.Prefix {
	if len(r.seen) == 0 || rarely(t, "unknown") {
		return r.drawPrompt(t)
	}
	q := rapid.SampledFrom(r.seen).Draw(t, "seen")
	if rapid.Bool().Draw(t, "all of it") {
		return q
	}
	return cut(q, rapid.IntRange(1, len(q.Tokens)).Draw(t, "keep"))
}

// cut is the prefix of so many tokens, with the items that lie in it.
func cut(q messages.Prefix, tokens int) messages.Prefix {
	q.Tokens = q.Tokens[:tokens]
	var items []messages.MultimodalItem
	for _, item := range q.Multimodal {
		if item.Start+item.Length <= tokens {
			items = append(items, item)
		}
	}
	q.Multimodal = items
	return q
}

func drawTokens(t *rapid.T, fewest, most int) []messages.Token {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) messages.Token {
		return messages.Token(rapid.IntRange(1, 2).Draw(t, "token"))
	}), fewest, most).Draw(t, "tokens")
}

// salts are those of all requests; the empty one is none.
var salts = []string{"", "s", "t"}

// drawNamespace draws mostly one, so that prompts meet; where salts have quotas,
// one of each salt, so that they compete.
func (r *run) drawNamespace(t *rapid.T) messages.Namespace {
	if len(r.config.SaltQuotas) > 0 {
		return messages.Namespace{Salt: rapid.SampledFrom(salts).Draw(t, "salt")}
	}
	return rapid.SampledFrom([]messages.Namespace{
		{}, {}, {}, {Salt: "s"}, {LoRA: "x", HasLoRA: true}, {HasLoRA: true},
	}).Draw(t, "namespace")
}

func drawPriority(t *rapid.T) messages.Priority {
	return rapid.SampledFrom([]messages.Priority{0, 20, 35, 50, 90, 100}).Draw(t, "priority")
}

func drawDuration(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 5 * time.Millisecond}).Draw(t,
		"duration")
}

// drawRetention draws disjoint ranges, or now and then ones that are refused.
func drawRetention(t *rapid.T, length int) *messages.Retention {
	if rapid.IntRange(0, 2).Draw(t, "retention") > 0 {
		return nil
	}
	r := &messages.Retention{}
	start := rapid.IntRange(0, 4).Draw(t, "range start")
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		end := start + rapid.IntRange(1, max(1, length)).Draw(t, "range length")
		if rarely(t, "wrong range") {
			end = start - 1
		}
		r.Ranges = append(r.Ranges, messages.RetentionRange{
			Start: start, End: end, Priority: drawPriority(t), Duration: drawDuration(t),
		})
		start = end + rapid.IntRange(0, 2).Draw(t, "range gap")
	}
	if n := len(r.Ranges); n > 0 && rapid.Bool().Draw(t, "open end") {
		r.Ranges[n-1].End = messages.EndOfPrompt
	}
	if len(r.Ranges) > 1 && rapid.Bool().Draw(t, "swap") {
		r.Ranges[0], r.Ranges[1] = r.Ranges[1], r.Ranges[0]
	}
	if rapid.Bool().Draw(t, "decode") {
		r.Decode = &messages.DecodeRetention{Priority: drawPriority(t), Duration: drawDuration(t)}
	}
	return r
}

// drawAdmit draws an admission.
func (r *run) drawAdmit(t *rapid.T) messages.AdmitRequest {
	q := r.drawPrompt(t)
	a := messages.AdmitRequest{
		Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal,
		Retention: drawRetention(t, len(q.Tokens)),
		Session:   rapid.SampledFrom([]string{"", "", "c1", "c2"}).Draw(t, "session"),
	}
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if kind == 5 || kind == 6 || kind == 8 {
		a.ChunkTokens = r.config.TokensPerBlock * rapid.IntRange(1, 3).Draw(t, "chunk blocks")
	}
	if kind == 7 || kind == 8 {
		a.BeamWidth = rapid.IntRange(2, 3).Draw(t, "beams")
	}
	return a
}
