package sim

import (
	"slices"
	"time"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// prompt is a text in its namespace.
type prompt struct{ messages.Prefix }

// texts is the number of different texts that prompts begin with; few, so that
// they meet.
const texts = 4

// token is the token of a text at a position.
func token(text, position int) messages.Token {
	h := uint64(text+1)*0x9e3779b97f4a7c15 ^ uint64(position+1)*0xbb67ae8584caa73b
	h ^= h >> 29
	return messages.Token(h * 0xbf58476d1ce4e5b9 >> 60)
}

// drawPrompt makes a prompt that shares beginnings with others.
func (w *world) drawPrompt() prompt {
	r := w.rng
	if len(w.past) > 0 && r.IntN(4) == 0 {
		return w.again(w.past[r.IntN(len(w.past))])
	}
	n := 1 + r.IntN(w.longest)
	if r.IntN(3) == 0 {
		n = max(1, n/w.cache.TokensPerBlock*w.cache.TokensPerBlock+r.IntN(2))
	}
	p := prompt{messages.Prefix{Namespace: w.drawNamespace()}}
	text, change := r.IntN(texts), n
	if r.IntN(3) == 0 {
		change = r.IntN(n)
	}
	for i := range n {
		if i == change {
			text = r.IntN(texts)
		}
		p.Tokens = append(p.Tokens, token(text, i))
	}
	if r.IntN(10) == 0 {
		start := r.IntN(n)
		item := messages.MultimodalItem{Start: start, Length: 1 + r.IntN(n-start)}
		item.Hash[0] = byte(r.IntN(2))
		p.Multimodal = append(p.Multimodal, item)
	}
	if w.encodes {
		w.drawInput(&p)
	}
	return p
}

// drawInput gives a prompt an encoder input. There are few, so that they meet.
func (w *world) drawInput(p *prompt) {
	r := w.rng
	text := r.IntN(texts)
	n := 1 + int(token(text, 0))*7%w.model.EncoderMaxLen
	for i := range n {
		p.Encoder = append(p.Encoder, token(text, i))
	}
	if r.IntN(8) == 0 {
		p.Encoder = p.Encoder[:1+r.IntN(n)]
	}
	if r.IntN(8) == 0 {
		start := r.IntN(len(p.Encoder))
		p.EncoderItems = []messages.MultimodalItem{{Start: start, Length: len(p.Encoder) - start}}
	}
}

// drawPrefix is what an observer asks about: a prompt, or an encoder input alone.
func (w *world) drawPrefix() prompt {
	p := w.drawPrompt()
	if w.encodes && w.rng.IntN(3) == 0 {
		p.Tokens, p.Multimodal = nil, nil
	}
	return p
}

// input is the name of the encoder input in namespaces, and what its tokens are.
func (p prompt) input() (ns messages.Namespace, chains []host.Chain) {
	ns = p.Namespace
	if len(p.Encoder) == 0 {
		return ns, nil
	}
	ns.Encoder = coordinator.EncoderKey(p.Encoder, p.EncoderItems)
	return ns, host.Chains(messages.Prefix{Namespace: ns, Tokens: p.Encoder})
}

// again goes on with a text that a sequence has ended with, whole or in part.
func (w *world) again(p prompt) prompt {
	n := len(p.Tokens)
	if w.rng.IntN(3) == 0 {
		n = 1 + w.rng.IntN(n)
	}
	q := prompt{messages.Prefix{
		Namespace: p.Namespace, Tokens: slices.Clone(p.Tokens[:n]), Encoder: p.Encoder,
		EncoderItems: p.EncoderItems,
	}}
	for range w.rng.IntN(4) {
		q.Tokens = append(q.Tokens, messages.Token(w.rng.IntN(3)))
	}
	for _, item := range p.Multimodal {
		if item.Start+item.Length <= n {
			q.Multimodal = append(q.Multimodal, item)
		}
	}
	q.Tokens = q.Tokens[:min(len(q.Tokens), w.model.MaxSeqLen)]
	return q
}

func (w *world) drawNamespace() messages.Namespace {
	switch w.rng.IntN(8) {
	case 0:
		return messages.Namespace{Salt: "a"}
	case 1:
		return messages.Namespace{HasLoRA: true}
	default:
		return messages.Namespace{}
	}
}

// keep remembers the text of a sequence.
func (w *world) keep(p prompt) {
	const kept = 12
	if len(w.past) == kept {
		w.past = w.past[1:]
	}
	w.past = append(w.past, p)
}

// drawRetention makes disjoint ranges with priorities and durations.
func (w *world) drawRetention(promptTokens int) *messages.Retention {
	r := w.rng
	if r.IntN(3) > 0 {
		return nil
	}
	duration := func() time.Duration {
		if r.IntN(2) == 0 {
			return 0
		}
		return time.Duration(1+r.IntN(900)) * time.Millisecond
	}
	priority := func() messages.Priority { return messages.Priority(r.IntN(21) * 5) }
	ret := &messages.Retention{}
	for at := 0; at < promptTokens && r.IntN(3) > 0; {
		end := at + 1 + r.IntN(promptTokens-at)
		ret.Ranges = append(ret.Ranges, messages.RetentionRange{Start: at, End: end, Priority: priority(),
			Duration: duration()})
		at = end + r.IntN(4)
	}
	if n := len(ret.Ranges); n > 0 && r.IntN(3) == 0 {
		ret.Ranges[n-1].End = messages.EndOfPrompt
	}
	if r.IntN(3) == 0 {
		ret.Decode = &messages.DecodeRetention{Priority: priority(), Duration: duration()}
	}
	return ret
}

// chains is the host's word for what the KV of each token is.
func (p prompt) chains() []host.Chain {
	own := p.Prefix
	own.Namespace, _ = p.input()
	return host.Chains(own)
}
