package coordinator

import "github.com/kvactor/kvactor/messages"

// validateEncoder checks an encoder input, which is there exactly if the model
// has an encoder.
func (c *Config) validateEncoder(tokens []messages.Token, items []messages.MultimodalItem) error {
	switch {
	case c.EncoderMaxLen == 0 && len(tokens)+len(items) > 0:
		return messages.Refuse(messages.NotSupported, "encoder tokens are for encoder-decoder models only")
	case c.EncoderMaxLen == 0:
		return nil
	case len(tokens) == 0:
		return messages.Refuse(messages.BadRequest, "encoder tokens are empty: the model is an encoder-decoder")
	}
	if err := c.validatePrefix(tokens, items); err != nil {
		return messages.Refuse(messages.BadRequest, "encoder input: %v", err)
	}
	return nil
}

// ValidatePrefix checks the values of a prefix with its encoder input. Without
// tokens it names the encoder input itself.
func (c *Config) ValidatePrefix(p *messages.Prefix) error {
	if err := validateNamespace(&p.Namespace); err != nil {
		return err
	}
	if err := c.validateEncoder(p.Encoder, p.EncoderItems); err != nil {
		return err
	}
	if c.EncoderMaxLen > 0 && len(p.Tokens)+len(p.Multimodal) == 0 {
		return nil
	}
	return c.validatePrefix(p.Tokens, p.Multimodal)
}

// validateStored checks a prefix of tokens that this coordinator stores.
func (c *Config) validateStored(p *messages.Prefix) error {
	if err := validateNamespace(&p.Namespace); err != nil {
		return err
	}
	if err := c.validatePrefix(p.Tokens, p.Multimodal); err != nil {
		return err
	}
	return c.validateEncoder(p.Encoder, p.EncoderItems)
}

// ValidateEncoderLength refuses an encoder input that is too long.
func (c *Config) ValidateEncoderLength(n int) error {
	if n > c.EncoderMaxLen {
		return messages.Refuse(messages.TooLong, "an encoder input of %d tokens is over encoder_max_len %d", n, c.EncoderMaxLen)
	}
	return nil
}
