// Package zstd compresses pages in a store with Zstandard. Pages of keys and values
// hardly get shorter (docs/stores.md has what was measured: by 0 to 1.4 %), so compression
// is off unless a host asks for it. It pays for pages that are padded or repeat themselves.
package zstd

import (
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Compressor implements stores.Compressor.
type Compressor struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

var _ stores.Compressor = (*Compressor)(nil)

// New returns a compressor of the library's fastest level.
func New() (*Compressor, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	// With the limit an object that claims to be longer than a page costs no memory.
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &Compressor{encoder: encoder, decoder: decoder}, nil
}

// Compress implements stores.Compressor.
func (c *Compressor) Compress(dst, src []byte) []byte { return c.encoder.EncodeAll(src, dst) }

// Decompress implements stores.Compressor.
func (c *Compressor) Decompress(dst, src []byte) error {
	out, err := c.decoder.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) {
		return fmt.Errorf("%d bytes, not %d", len(out), len(dst))
	}
	return nil
}
