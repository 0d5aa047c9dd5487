package zstd_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/zstd"
)

var geometry = stores.Geometry{Model: "m",
	Pools: []messages.PoolInfo{{PageBytes: 4096, TokensPerBlock: 4}}}

func TestCompressesOnlyWhereItPays(t *testing.T) {
	c, err := zstd.New()
	require.NoError(t, err)
	space := stores.NewSpace(geometry.Fingerprint(), messages.Namespace{Salt: "s"}, c)
	block := stores.Block{Parent: space.Root(), Tokens: []messages.Token{1, 2, 3, 4}}

	noise := make([]byte, 4096)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(noise)
	even := bytes.Repeat([]byte{0, 60}, 2048)
	for name, page := range map[string][]byte{"noise": noise, "even": even} {
		body := space.Encode(nil, block, page)
		if name == "noise" {
			assert.Greater(t, len(body), len(page), name)
		} else {
			assert.Less(t, len(body), len(page)/4, name)
		}
		got := make([]byte, len(page))
		require.NoError(t, space.Decode(got, body, block), name)
		assert.Equal(t, page, got, name)
	}
}

// A page that decompresses to more or less than a page is refused and takes no memory.
func TestRefusesAnotherLength(t *testing.T) {
	c, err := zstd.New()
	require.NoError(t, err)
	short := c.Compress(nil, make([]byte, 100))
	long := c.Compress(nil, make([]byte, 1<<20))
	dst := make([]byte, 4096)
	assert.Error(t, c.Decompress(dst, short))
	assert.Error(t, c.Decompress(dst, long))
	assert.Error(t, c.Decompress(dst, []byte("no frame")))
}

func TestWithoutCompressorItIsAMiss(t *testing.T) {
	c, err := zstd.New()
	require.NoError(t, err)
	writer := stores.NewSpace(geometry.Fingerprint(), messages.Namespace{}, c)
	reader := stores.NewSpace(geometry.Fingerprint(), messages.Namespace{}, nil)
	block := stores.Block{Parent: writer.Root(), Tokens: []messages.Token{1, 2, 3, 4}}
	body := writer.Encode(nil, block, make([]byte, 4096))
	assert.ErrorIs(t, reader.Decode(make([]byte, 4096), body, block), stores.ErrVersion)
}
