package publish

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

// The digests and integers were computed by vLLM 0.33 with sha256_cbor and its default
// seed.
func TestSHA256CBORNamesAreVLLMs(t *testing.T) {
	n := cborNamer{paths: map[string]string{"ad": "/p"}}
	root := &block{digest: n.root()}
	assert.Equal(t, "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
		hex.EncodeToString(root.digest[:]))
	first := []messages.Token{1, 2, 3, 4}
	for _, c := range []struct {
		ns     *messages.Namespace
		digest string
		wire   uint64
	}{
		{nil, "58d0879dff3800f65f8c5fd449d73048c0f7699dd238a03b84b146b151d55111", 9561501211280363793},
		{&messages.Namespace{Salt: "t"},
			"a0ac52c648ce50bf95a7eb762effceb7eef511000dfa6489d36dafc24e82c782", 15235026363539965826},
		{&messages.Namespace{LoRA: "ad", HasLoRA: true},
			"d6e01294fb39bdfddeac068c9ea088a2ad259e501bf58e1c35795d4b9ade9ee0", 3853213535494381280},
	} {
		b := &block{parent: root, tokens: first, namespace: c.ns}
		wire, d := n.name(root, b)
		assert.Equal(t, c.digest, hex.EncodeToString(d[:]))
		assert.Equal(t, c.wire, wire)
	}
	parent := &block{parent: root, tokens: first}
	_, parent.digest = n.name(root, parent)
	wire, d := n.name(root, &block{parent: parent, tokens: []messages.Token{5, 6, 7, 8}})
	assert.Equal(t, "e1bc29393a2da9fd798f35ff04d215f846aee6df4b803ce3d43b57df56b58fb1",
		hex.EncodeToString(d[:]))
	assert.Equal(t, uint64(15292913576410714033), wire)
}

// An adapter is in the name of each block, a salt in that of the first only, and an
// item in those of the blocks that it covers.
func TestWhatANameDependsOn(t *testing.T) {
	n := cborNamer{}
	root := &block{digest: n.root()}
	names := func(ns *messages.Namespace, covers []messages.Cover) (list [2]uint64) {
		first := &block{parent: root, tokens: []messages.Token{1, 2}, namespace: ns}
		list[0], first.digest = n.name(root, first)
		second := &block{parent: first, tokens: []messages.Token{70000, 1 << 20}, covers: covers,
			namespace: ns}
		list[1], _ = n.name(root, second)
		return list
	}
	plain := names(nil, nil)
	assert.Equal(t, plain, names(&messages.Namespace{}, nil))
	seen := map[uint64]bool{plain[0]: true, plain[1]: true}
	for _, ns := range []messages.Namespace{{Salt: "a"}, {LoRA: "a", HasLoRA: true}, {HasLoRA: true},
		{Salt: "a", LoRA: "a", HasLoRA: true}} {
		for _, name := range names(&ns, nil) {
			assert.False(t, seen[name], ns)
			seen[name] = true
		}
	}
	for _, covers := range [][]messages.Cover{
		{{Covered: true}, {}}, {{}, {Covered: true}}, {{Covered: true, Position: 300}, {}},
		{{Covered: true, Hash: [32]byte{1}}, {}},
		{{Covered: true}, {Covered: true, Position: 1}}, {{Covered: true}, {Covered: true}},
	} {
		got := names(nil, covers)
		assert.Equal(t, plain[0], got[0])
		if covers[1].Position != 1 { // an item of one token and one of two have one offset
			assert.False(t, seen[got[1]], covers)
			seen[got[1]] = true
		}
	}
}

func TestANameIsNeverZero(t *testing.T) {
	assert.Equal(t, uint64(1), wireName(make([]byte, 16)))
	assert.Equal(t, uint64(0x0102), wireName([]byte{9, 0, 0, 0, 0, 0, 0, 1, 2}))
}
