package cross

import "github.com/kvactor/kvactor/messages"

// route says which side a prefix is about, and how that side knows it.
func (j *Join) route(p *messages.Prefix) (own messages.Prefix, side func(*Join, any, func(*Join, error)), in input, err error) {
	if err := j.config.ValidatePrefix(p); err != nil {
		return own, nil, in, err
	}
	in = j.inputOf(p.Namespace, p.Encoder, p.EncoderItems)
	if len(p.Tokens) == 0 {
		return messages.Prefix{Namespace: in.namespace, Tokens: in.tokens}, (*Join).toEncoder, in, nil
	}
	in.length = len(p.Tokens)
	return messages.Prefix{Namespace: in.namespace, Tokens: p.Tokens, Multimodal: p.Multimodal}, (*Join).toDecoder, in, nil
}

// lookup asks the side that a prefix is about.
func (j *Join) lookup(r *messages.Lookup) {
	own, side, in, err := j.route(&r.Prefix)
	if err != nil {
		r.Found, r.Err = messages.Found{}, err
		j.reply()
		return
	}
	request := &messages.Lookup{Prefix: own}
	side(j, request, served(func(j *Join) {
		r.Found, r.Err = trim(request.Found, in.length), request.Err
		j.reply()
	}))
}

// trim takes the padding off. It lies in the last block, the first to leave the
// device.
func trim(f messages.Found, length int) messages.Found {
	padding := max(0, f.MatchedTokens-length)
	f.MatchedTokens -= padding
	if f.SecondaryTokens > 0 {
		f.SecondaryTokens -= padding
	} else {
		f.PrimaryTokens -= padding
	}
	return f
}

// crossPin marks pins of the cross side.
const crossPin messages.PinID = 1 << 63

// pin holds what one side has stored of a prefix.
func (j *Join) pin(r *messages.PinPrefix) {
	own, side, in, err := j.route(&r.Prefix)
	if err != nil {
		r.Pinned, r.Err = messages.Pinned{}, err
		j.reply()
		return
	}
	request := &messages.PinPrefix{Prefix: own}
	side(j, request, served(func(j *Join) {
		r.Pinned, r.Err = request.Pinned, request.Err
		if r.Err == nil && len(r.Prefix.Tokens) == 0 {
			r.Pinned.Pin |= crossPin
			r.Pinned.Tokens = min(r.Pinned.Tokens, in.length)
		}
		j.reply()
	}))
}

// unpin ends a pin on the side that has it.
func (j *Join) unpin(r *messages.UnpinPrefix) {
	if r.Pin&crossPin == 0 {
		j.toDecoder(r, (*Join).passed)
		return
	}
	own := &messages.UnpinPrefix{Pin: r.Pin &^ crossPin}
	j.toEncoder(own, served(func(j *Join) {
		r.Err = own.Err
		if r.Err != nil {
			r.Err = messages.Refuse(messages.UnknownPin, "pin %d does not exist", r.Pin)
		}
		j.reply()
	}))
}

// prefetch brings to the device what one side has of a prefix.
func (j *Join) prefetch(r *messages.Prefetch) {
	own, side, _, err := j.route(&r.Prefix)
	if err != nil {
		r.OnboardedPages, r.Err = 0, err
		j.reply()
		return
	}
	request := &messages.Prefetch{Prefix: own}
	side(j, request, served(func(j *Join) {
		r.OnboardedPages, r.Err = request.OnboardedPages, request.Err
		j.reply()
	}))
}

// invalidate forgets a session or a salt on both sides, a prefix on its own.
func (j *Join) invalidate(r *messages.Invalidate) {
	if r.Selector.Prefix == nil {
		other := &messages.Invalidate{Selector: r.Selector}
		j.both(r, other, func(j *Join) {
			r.Blocks += other.Blocks
			j.reply()
		})
		return
	}
	own, side, _, err := j.route(r.Selector.Prefix)
	if err != nil {
		r.Blocks, r.Err = 0, err
		j.reply()
		return
	}
	request := &messages.Invalidate{Selector: r.Selector}
	request.Selector.Prefix = &own
	if len(r.Selector.Prefix.Tokens) == 0 {
		own.Tokens = own.Tokens[:1] // no other input is in the namespace: all its blocks begin so
	}
	side(j, request, served(func(j *Join) {
		r.Blocks, r.Err = request.Blocks, request.Err
		j.reply()
	}))
}

// reset forgets on both sides what nobody holds.
func (j *Join) reset(r *messages.Reset) {
	other := &messages.Reset{}
	j.both(r, other, func(j *Join) {
		if r.Err == nil {
			r.Err = other.Err
		}
		j.reply()
	})
}
