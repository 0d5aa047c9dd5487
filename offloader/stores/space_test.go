package stores_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

func geometry() stores.Geometry {
	return stores.Geometry{Model: "m", Pools: []messages.PoolInfo{
		{Kind: "attention", Window: 16, KVHeads: 1, Layers: []int{0}, DType: "float16", HeadDim: 8,
			PageBytes: 128, TokensPerBlock: 4, PrimaryPages: 8},
		{Kind: "attention", KVHeads: 1, Layers: []int{1, 2}, DType: "float16", HeadDim: 8, PageBytes: 256,
			TokensPerBlock: 4, PrimaryPages: 8},
	}}
}

func TestFingerprintIsOfTheGeometryAlone(t *testing.T) {
	base := geometry().Fingerprint()
	for name, change := range map[string]func(*stores.Geometry){
		"model":     func(g *stores.Geometry) { g.Model = "n" },
		"window":    func(g *stores.Geometry) { g.Pools[0].Window = 15 },
		"dtype":     func(g *stores.Geometry) { g.Pools[1].DType = "bfloat16" },
		"layers":    func(g *stores.Geometry) { g.Pools[1].Layers = []int{1, 3} },
		"heads":     func(g *stores.Geometry) { g.Pools[1].KVHeads = 2 },
		"fewer":     func(g *stores.Geometry) { g.Pools = g.Pools[:1] },
		"tokens":    func(g *stores.Geometry) { g.Pools[0].TokensPerBlock = 8 },
		"exchanged": func(g *stores.Geometry) { g.Pools[0], g.Pools[1] = g.Pools[1], g.Pools[0] },
	} {
		g := geometry()
		change(&g)
		assert.NotEqual(t, base, g.Fingerprint(), name)
	}
	for name, change := range map[string]func(*stores.Geometry){
		"pages": func(g *stores.Geometry) { g.Pools[0].PrimaryPages, g.Pools[0].SecondaryPages = 9, 3 },
		"sink":  func(g *stores.Geometry) { g.Pools[0].Sink = 4 },
		"name":  func(g *stores.Geometry) { g.Pools[0].Name = "w16h1.2" },
	} {
		g := geometry()
		change(&g)
		assert.Equal(t, base, g.Fingerprint(), name)
	}
}

// Everything that makes two blocks different makes their keys different, also where
// tokens, blocks or names are joined in another way.
func TestKeysDiffer(t *testing.T) {
	f := geometry().Fingerprint()
	item := messages.Cover{Covered: true, Hash: [32]byte{1}, Position: 0}
	seen := map[stores.Key]string{}
	add := func(name string, n messages.Namespace, pool messages.PoolID, blocks ...stores.Block) {
		space := stores.NewSpace(f, n, nil)
		key := space.Root()
		for _, b := range blocks {
			key = space.Next(key, b.Tokens, b.Covers)
		}
		object := key.Key(pool)
		assert.Empty(t, seen[object], name)
		seen[object] = name
	}
	block := func(tokens ...messages.Token) stores.Block { return stores.Block{Tokens: tokens} }
	covered := func(covers ...messages.Cover) stores.Block {
		return stores.Block{Tokens: []messages.Token{1, 2}, Covers: covers}
	}
	none := messages.Namespace{}
	add("root", none, 0)
	add("one", none, 0, block(1, 2))
	add("pool", none, 1, block(1, 2))
	add("token", none, 0, block(1, 3))
	add("two", none, 0, block(1, 2), block(3, 4))
	add("joined", none, 0, block(1, 2, 3, 4))
	add("item", none, 0, covered(item, messages.Cover{}))
	add("item later", none, 0, covered(messages.Cover{}, item))
	add("no item", none, 0, covered(messages.Cover{}, messages.Cover{}))
	item.Position = 1
	add("item's end", none, 0, covered(item, messages.Cover{}))
	for _, n := range []messages.Namespace{
		{HasLoRA: true}, {HasLoRA: true, LoRA: "a"}, {Salt: "a"}, {Salt: "b"}, {Encoder: "a"},
		{Salt: "a", HasLoRA: true},
	} {
		add("namespace", n, 0, block(1, 2))
	}
	other := geometry()
	other.Model = "n"
	f = other.Fingerprint()
	add("model", none, 0, block(1, 2))
	add("model and salt", messages.Namespace{Salt: "a"}, 0, block(1, 2))
}
