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
			line.tokens.length(), p.maxSeqLen)
	}
	return prefix, p.engine.Validate(messages.AdmitRequest{
		Namespace: prefix.Namespace, Tokens: prefix.Tokens, Multimodal: prefix.Multimodal,
	})
}

func decodeLookup(o *object) request {
	line, stored := o.prefix(), o.flagOr("stored", false)
	return withHost("lookup", func(p *player) (any, error) {
		prefix, err := p.prefixOf("lookup", line)
		if err != nil {
			return nil, err
		}
		found, err := p.lookup(prefix, stored)
		answer := lookupAnswer{
			head: done("lookup"), MatchedTokens: found.MatchedTokens, PrimaryTokens: found.PrimaryTokens,
			SecondaryTokens: found.SecondaryTokens,
		}
		if stored {
			answer.StoredTokens = &found.StoredTokens
		}
		if p.recurrent() {
			answer.AttentionTokens = &found.AttentionTokens
		}
		return answer, err
	})
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

func decodePin(o *object) request {
	name, line := o.text("pin"), o.prefix()
	return withHost("pin", func(p *player) (any, error) {
		prefix, err := p.prefixOf("pin", line)
		if err != nil {
			return nil, err
		}
		if _, ok := p.pins[name]; ok {
			return nil, bad("pin", "pin %q is there already", name)
		}
		pinned, err := p.engine.Pin(p.ctx, prefix)
		if err != nil {
			return nil, err
		}
		p.pins[name] = pinned.Pin
		return pinAnswer{done("pin"), pinned.Tokens}, nil
	})
}

func decodeUnpin(o *object) request {
	name := o.text("pin")
	return withHost("unpin", func(p *player) (any, error) {
		pin, ok := p.pins[name]
		if !ok {
			return nil, refusals.New(messages.ErrUnknownPin, "pin %q is not there", name)
		}
		err := p.engine.Unpin(p.ctx, pin)
		// pins end with what the tree forgets in a failure
		if err == nil || errors.Is(err, messages.ErrUnknownPin) {
			delete(p.pins, name)
		}
		if err != nil {
			return nil, err
		}
		return done("unpin"), nil
	})
}

// decodeInvalidate reads one of four selectors. Salt is one of them, but beside tokens or an
// adapter a part of their namespace.
func decodeInvalidate(o *object) request {
	session := o.optText("session")
	var line prefixLine
	byTokens := o.has("tokens")
	if byTokens {
		line = o.prefix()
	} else {
		line.salt, line.lora = o.optText("salt"), o.optText("lora")
	}
	byNamespace := line.salt != nil || line.lora != nil
	switch {
	case session != nil && (byTokens || byNamespace):
		o.fail("invalidate: more than one of session, salt, lora, tokens")
	case session == nil && !byTokens && !byNamespace:
		o.fail("invalidate: one of the fields session, salt, lora, tokens is missing")
	}
	return withHost("invalidate", func(p *player) (any, error) {
		selector, err := p.selector(session, line, byTokens)
		if err != nil {
			return nil, err
		}
		blocks, err := p.engine.Invalidate(p.ctx, selector)
		return invalidateAnswer{done("invalidate"), blocks}, err
	})
}

func (p *player) selector(
	session *string, line prefixLine, byTokens bool,
) (messages.Selector, error) {
	if session != nil {
		return messages.Selector{Session: sessionName(*session)}, nil
	}
	if byTokens {
		prefix, err := p.prefixOf("invalidate", line)
		return messages.Selector{Prefix: &prefix}, err
	}
	ns, err := line.namespace("invalidate")
	return messages.Selector{Salt: ns.Salt, LoRA: ns.LoRA, HasLoRA: ns.HasLoRA}, err
}

func decodePrefetch(o *object) request {
	line := o.prefix()
	return withHost("prefetch", func(p *player) (any, error) {
		prefix, err := p.prefixOf("prefetch", line)
		if err != nil {
			return nil, err
		}
		pages, err := p.engine.Prefetch(p.ctx, prefix)
		return prefetchAnswer{done("prefetch"), pages}, err
	})
}

func decodeReset(o *object) request {
	running := o.flagOr("running", false)
	return withHost("reset", func(p *player) (any, error) {
		if running {
			return done("reset"), p.engine.ResetRunning(p.ctx)
		}
		return done("reset"), p.engine.Reset(p.ctx)
	})
}

func decodeWeights(o *object) request {
	epoch := o.text("epoch")
	return withHost("weights", func(p *player) (any, error) {
		err := p.engine.SetWeights(p.ctx, epoch)
		if err == nil {
			p.weights = epoch
		}
		return done("weights"), err
	})
}

func decodeRebalance(o *object) request {
	fractions := o.numbers("fractions")
	return withHost("rebalance", func(p *player) (any, error) {
		answer, err := p.engine.Rebalance(p.ctx, maps.Clone(fractions))
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
	})
}
