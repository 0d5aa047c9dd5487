package script

import (
	"errors"
	"maps"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// prefixOf checks a prefix to the end: also what only the engine knows of
// items, and that it is not too long to write out.
func (p *player) prefixOf(op string, line prefixLine) (messages.Prefix, error) {
	prefix, err := line.value(op)
	if err != nil {
		return prefix, err
	}
	if prefix.Tokens == nil {
		return prefix, refusals.New(messages.ErrTooLong, "%s: %d tokens are over max_seq_len %d", op,
			line.Tokens.length(), p.maxSeqLen)
	}
	return prefix, p.engine.Validate(messages.AdmitRequest{
		Namespace: prefix.Namespace, Tokens: prefix.Tokens, Multimodal: prefix.Multimodal,
	})
}

type lookupRequest struct {
	prefixLine
	Stored bool `json:"stored,omitempty"`
}

func (q *lookupRequest) do(p *player) (any, error) {
	prefix, err := p.prefixOf("lookup", q.prefixLine)
	if err != nil {
		return nil, err
	}
	found, err := p.lookup(prefix, q.Stored)
	answer := lookupAnswer{
		head: done("lookup"), MatchedTokens: found.MatchedTokens, PrimaryTokens: found.PrimaryTokens,
		SecondaryTokens: found.SecondaryTokens,
	}
	if q.Stored {
		answer.StoredTokens = &found.StoredTokens
	}
	if p.recurrent() {
		answer.AttentionTokens = &found.AttentionTokens
	}
	return answer, err
}

// lookup asks the engine, and with stored its store as well.
func (p *player) lookup(prefix messages.Prefix, stored bool) (messages.Found, error) {
	if !stored {
		return p.engine.Lookup(p.ctx, prefix)
	}
	if err := p.withoutStore("lookup with stored"); err != nil {
		return messages.Found{}, err
	}
	return p.rig.Store.Lookup(p.ctx, prefix)
}

type pinRequest struct {
	Pin string `json:"pin"`
	prefixLine
}

func (q *pinRequest) do(p *player) (any, error) {
	prefix, err := p.prefixOf("pin", q.prefixLine)
	if err != nil {
		return nil, err
	}
	if _, ok := p.pins[q.Pin]; ok {
		return nil, bad("pin", "pin %q is there already", q.Pin)
	}
	pinned, err := p.engine.Pin(p.ctx, prefix)
	if err != nil {
		return nil, err
	}
	p.pins[q.Pin] = pinned.Pin
	return pinAnswer{done("pin"), pinned.Tokens}, nil
}

type unpinRequest struct {
	Pin string `json:"pin"`
}

func (q *unpinRequest) do(p *player) (any, error) {
	pin, ok := p.pins[q.Pin]
	if !ok {
		return nil, refusals.New(messages.ErrUnknownPin, "pin %q is not there", q.Pin)
	}
	err := p.engine.Unpin(p.ctx, pin)
	// pins end with what the tree forgets in a failure
	if err == nil || errors.Is(err, messages.ErrUnknownPin) {
		delete(p.pins, q.Pin)
	}
	if err != nil {
		return nil, err
	}
	return done("unpin"), nil
}

// invalidateRequest has one of four selectors. Salt is one of them, but beside tokens or an adapter
// a part of their namespace.
type invalidateRequest struct {
	Session *string     `json:"session"`
	Tokens  *tokensLine `json:"tokens"`
	namespaceLine
}

func (q *invalidateRequest) check(r *reader, _ string) {
	others := q.Tokens != nil || q.Salt != nil || q.LoRA != nil
	switch {
	case q.Session != nil && others:
		r.fail("more than one of session, salt, lora, tokens")
	case q.Session == nil && !others:
		r.fail("one of the fields session, salt, lora, tokens is missing")
	case q.Tokens == nil && q.Multimodal != nil:
		r.fail("unknown field %q", "multimodal")
	}
}

func (q *invalidateRequest) do(p *player) (any, error) {
	selector, err := q.selector(p)
	if err != nil {
		return nil, err
	}
	blocks, err := p.engine.Invalidate(p.ctx, selector)
	return invalidateAnswer{done("invalidate"), blocks}, err
}

func (q *invalidateRequest) selector(p *player) (messages.Selector, error) {
	if q.Session != nil {
		return messages.Selector{Session: sessionName(*q.Session)}, nil
	}
	if q.Tokens != nil {
		prefix, err := p.prefixOf("invalidate", prefixLine{*q.Tokens, q.namespaceLine})
		return messages.Selector{Prefix: &prefix}, err
	}
	ns, err := q.namespace("invalidate")
	return messages.Selector{Salt: ns.Salt, LoRA: ns.LoRA, HasLoRA: ns.HasLoRA}, err
}

type prefetchRequest struct {
	prefixLine
}

func (q *prefetchRequest) do(p *player) (any, error) {
	prefix, err := p.prefixOf("prefetch", q.prefixLine)
	if err != nil {
		return nil, err
	}
	pages, err := p.engine.Prefetch(p.ctx, prefix)
	return prefetchAnswer{done("prefetch"), pages}, err
}

type resetRequest struct {
	Running bool `json:"running,omitempty"`
}

func (q *resetRequest) do(p *player) (any, error) {
	if q.Running {
		return done("reset"), p.engine.ResetRunning(p.ctx)
	}
	return done("reset"), p.engine.Reset(p.ctx)
}

type weightsRequest struct {
	Epoch string `json:"epoch"`
}

func (q *weightsRequest) do(p *player) (any, error) {
	err := p.engine.SetWeights(p.ctx, q.Epoch)
	if err == nil {
		p.weights = q.Epoch
	}
	return done("weights"), err
}

type rebalanceRequest struct {
	Fractions map[string]float64 `json:"fractions,omitempty"`
}

func (q *rebalanceRequest) do(p *player) (any, error) {
	answer, err := p.engine.Rebalance(p.ctx, maps.Clone(q.Fractions))
	if err != nil {
		return nil, err
	}
	out := rebalanceAnswer{head: done("rebalance"), Pools: poolAnswers(answer.Pools)}
	for i, pool := range answer.Pools {
		moved := [][2]messages.PageID{}
		if i < len(answer.Moved) {
			for m := range slices.Values(answer.Moved[i]) {
				moved = append(moved, [2]messages.PageID{m.Old, m.New})
			}
		}
		out.Moved = append(out.Moved, named[[][2]messages.PageID]{pool.Name, moved})
	}
	return out, nil
}
