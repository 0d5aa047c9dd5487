package load

import (
	"slices"

	"github.com/kvactor/kvactor"
)

// prompt is what identifies the contents of pages.
type prompt struct {
	namespace kvactor.Namespace
	tokens    []kvactor.Token
	items     []kvactor.MultimodalItem
	input     []kvactor.Token // of the encoder
}

// draw draws a prompt: most begin as one before.
func (h *host) draw() prompt {
	p, ok := h.w.remembered(h.rand)
	if !ok || h.rand.IntN(5) == 0 {
		p = h.fresh()
	}
	limit := maxSeqLen - 12
	keep := min(len(p.tokens), limit-1)
	if keep > 0 && h.rand.IntN(4) > 0 {
		keep -= h.rand.IntN(keep)
	}
	tail := h.rand.IntN(min(24, limit-keep)) + 1
	p.tokens = slices.Clone(p.tokens[:keep])
	for range tail {
		p.tokens = append(p.tokens, kvactor.Token(h.rand.IntN(3)))
	}
	p.items = inside(p.items, len(p.tokens))
	if len(p.items) == 0 && h.rand.IntN(6) == 0 {
		item := kvactor.MultimodalItem{Start: h.rand.IntN(len(p.tokens))}
		item.Length = 1 + h.rand.IntN(len(p.tokens)-item.Start)
		item.Hash[0] = byte(h.rand.IntN(2))
		p.items = []kvactor.MultimodalItem{item}
	}
	return p
}

// fresh draws a namespace and the encoder's input.
func (h *host) fresh() prompt {
	p := prompt{namespace: kvactor.Namespace{Salt: []string{"", "a", "b"}[h.rand.IntN(3)]}}
	if h.rand.IntN(6) == 0 {
		p.namespace.HasLoRA, p.namespace.LoRA = true, []string{"", "x"}[h.rand.IntN(2)]
	}
	if h.w.model.Encodes() {
		n := 1 + h.rand.IntN(h.w.model.EncoderMaxLen)
		p.input = make([]kvactor.Token, n)
		p.input[n/2] = kvactor.Token(h.rand.IntN(2))
	}
	return p
}

// prefix is the prompt as requests about stored blocks have it.
func (p *prompt) prefix() kvactor.Prefix {
	return kvactor.Prefix{
		Namespace: p.namespace, Tokens: p.tokens, Multimodal: p.items, Encoder: p.input,
	}
}

// request is the prompt as an admission has it.
func (p *prompt) request() kvactor.AdmitRequest {
	return kvactor.AdmitRequest{
		Namespace: p.namespace, Tokens: slices.Clone(p.tokens), Multimodal: p.items, Encoder: p.input,
	}
}

// inside returns the items that lie within so many tokens.
func inside(items []kvactor.MultimodalItem, tokens int) (list []kvactor.MultimodalItem) {
	for _, i := range items {
		if i.Start+i.Length <= tokens {
			list = append(list, i)
		}
	}
	return list
}

// root is the hash of what lies before the first token.
func (p *prompt) root() uint64 {
	root := mixText(1, p.namespace.Salt)
	if p.namespace.HasLoRA {
		root = mixText(mix(root, 2), p.namespace.LoRA)
	}
	return p.encoded(root)
}

// encoded enters the encoder's whole input into a hash.
func (p *prompt) encoded(h uint64) uint64 {
	for _, t := range p.input {
		h = mix(h, uint64(t))
	}
	return mix(h, uint64(len(p.input)))
}

// inputRows are what the rows of the encoder are made of: an encoder attends in both directions.
func (p *prompt) inputRows() []uint64 {
	rows := make([]uint64, len(p.input))
	for i := range rows {
		rows[i] = mix(p.root(), uint64(i)+1000)
	}
	return rows
}

// extend returns the chain of hashes with those of further tokens. It writes to no array that
// a kernel has.
func (p *prompt) extend(chain []uint64, tokens []kvactor.Token) []uint64 {
	h := p.root()
	if len(chain) > 0 {
		h = chain[len(chain)-1]
	}
	chain = slices.Clip(chain)
	for _, t := range tokens {
		h = mix(h, uint64(t))
		for _, item := range p.items {
			if at := len(chain) - item.Start; at >= 0 && at < item.Length {
				h = mix(mix(h, uint64(item.Hash[0])), uint64(at)+1)
			}
		}
		chain = append(chain, h)
	}
	return chain
}
