package publish

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
)

// Both payloads were encoded by the classes of vLLM 0.33.
const (
	goldenStored  = "93cb3ff800000000000091de000ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf800000000000000002b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797392c0c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e00"
	goldenRemoved = "93cb3ff80000000000009284a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739102a66d656469756da3435055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656401"
)

func TestTheBytesAreVLLMs(t *testing.T) {
	got, n := AppendVLLM(nil, &Batch{Time: 1.5, TokensPerBlock: 2, Groups: true, Changes: []Change{{
		Kind: Stored, Blocks: []Block{{Name: 1 << 63, Tokens: []messages.Token{1, 2}},
			{Name: 2, Tokens: []messages.Token{3, 4}}},
	}}})
	assert.Equal(t, goldenStored, hex.EncodeToString(got))
	assert.Equal(t, 1, n)
	got, n = AppendVLLM(nil, &Batch{Time: 1.5, Rank: 1, TokensPerBlock: 2, Groups: true,
		Changes: []Change{
			{Kind: Removed, Tier: messages.Secondary, Blocks: []Block{{Name: 2}}}, {Kind: Cleared},
		}})
	assert.Equal(t, goldenRemoved, hex.EncodeToString(got))
	assert.Equal(t, 2, n)
}

// change is a block behind another that has moved to host memory, salted, of an
// adapter, its second token in an image.
var change = Change{
	Kind: TierChanged, Tier: messages.Secondary, OldTier: messages.Primary, Parent: 3, HasParent: true,
	Namespace: messages.Namespace{Salt: "s", LoRA: "ad", HasLoRA: true},
	Blocks: []Block{{
		Name: 300, Tokens: []messages.Token{-1 & 0x7f, 70000},
		Covers: []messages.Cover{{}, {Covered: true, Hash: [32]byte{0xab}, Position: 40}}, Priority: 80,
	}},
}

func TestAMoveIsAStoreAndARemoval(t *testing.T) {
	got, n := AppendVLLM(nil, &Batch{TokensPerBlock: 2, Changes: []Change{change}})
	assert.Equal(t, 2, n)
	back, rest := unpack(t, got)
	assert.Empty(t, rest)
	item := "ab" + hex.EncodeToString(make([]byte, 31))
	assert.Equal(t, []any{0.0, []any{
		map[string]any{
			"type": "BlockStored", "block_hashes": []any{300}, "parent_block_hash": 3,
			"token_ids": []any{127, 70000}, "block_size": 2,
			"lora_id": nil, "medium": "CPU", "lora_name": "ad", "extra_keys": []any{[]any{[]any{item, -39}}},
			"cache_salt": "s",
		},
		map[string]any{"type": "BlockRemoved", "block_hashes": []any{300}, "medium": "GPU"},
	}, 0}, back)
}

// The salt is an extra key of the first block of a prompt only.
func TestASaltIsInTheFirstBlock(t *testing.T) {
	got, _ := AppendVLLM(nil, &Batch{TokensPerBlock: 1, Changes: []Change{{
		Kind: Stored, Namespace: messages.Namespace{Salt: "s"},
		Blocks: []Block{{Name: 1, Tokens: []messages.Token{1}}, {Name: 2, Tokens: []messages.Token{2}}},
	}}})
	back, _ := unpack(t, got)
	event := back.([]any)[1].([]any)[0].(map[string]any)
	assert.Equal(t, []any{[]any{"s"}, nil}, event["extra_keys"])
	assert.Equal(t, "s", event["cache_salt"])
	assert.Nil(t, event["lora_name"])
}

// AIBrix gets arrays with one block each, whose parents are chained, and no moves.
func TestAIBrixGetsABlockAnEvent(t *testing.T) {
	got, n := AppendAIBrix(nil, &Batch{Time: 2, TokensPerBlock: 1, Changes: []Change{
		{Kind: Stored, Blocks: []Block{{Name: 4, Tokens: []messages.Token{1}},
			{Name: 5, Tokens: []messages.Token{2}}}},
		change, {Kind: PriorityChanged}, {Kind: Created},
		{Kind: Removed, Tier: messages.Secondary, Blocks: []Block{{Name: 5}, {Name: 4}}}, {Kind: Cleared},
	}})
	assert.Equal(t, 5, n)
	back, rest := unpack(t, got)
	assert.Empty(t, rest)
	assert.Equal(t, []any{2.0, []any{
		[]any{"BlockStored", []any{4}, nil, []any{1}, 1, nil, "GPU", nil},
		[]any{"BlockStored", []any{5}, 4, []any{2}, 1, nil, "GPU", nil},
		[]any{"BlockRemoved", []any{5}, "GPU"}, []any{"BlockRemoved", []any{4}, "GPU"},
		[]any{"AllBlocksCleared"},
	}, 0}, back)
}

func TestPolledEventsAreTensorRTLLMs(t *testing.T) {
	priority := change
	priority.Kind, priority.OldPriority = PriorityChanged, 35
	second := change
	second.Kind = Stored
	list := (&TRTLLM{WindowSize: 4096}).Append(nil, []Change{
		{Kind: Created, Pages: events.PoolPages{Primary: 8, Secondary: 4}},
		{Kind: Stored, Blocks: []Block{{Name: 3, Tokens: []messages.Token{9}, Priority: 35}}},
		second, change, priority, {Kind: Removed, Blocks: []Block{{Name: 300}}}, {Kind: Cleared},
	})
	item := "ab" + hex.EncodeToString(make([]byte, 31))
	want := []string{
		`{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[8,4]},"window_size":4096}`,
		`{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":3,` +
			`"tokens":[{"type":"unique_token","token_id":9,"token_extra_id":0}],"cache_level":0,"priority":35}]},"window_size":4096}`,
		`{"event_id":2,"data":{"type":"stored","parent_hash":3,"blocks":[{"type":"stored_block","block_hash":300,` +
			`"tokens":[{"type":"unique_token","token_id":127,"token_extra_id":0},{"type":"unique_token","token_id":70000,"token_extra_id":0}],` +
			`"cache_level":1,"priority":80,"mm_keys":[{"type":"mm_key","hash":"` + item +
			`","start_offset":40}],"cache_salt":"s"}],"lora_name":"ad"},"window_size":4096}`,
		`{"event_id":3,"data":{"type":"updated","block_hash":300,"cache_level":{"type":"event_diff","old_value":0,"new_value":1}},"window_size":4096}`,
		`{"event_id":4,"data":{"type":"updated","block_hash":300,"priority":{"type":"event_diff","old_value":35,"new_value":80}},"window_size":4096}`,
		`{"event_id":5,"data":{"type":"removed","block_hashes":[300]},"window_size":4096}`,
	}
	require.Len(t, list, len(want))
	for i, e := range list {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		assert.Equal(t, want[i], string(text))
	}
}

// Each size of a number, a text and a list is written so that it is read back.
func TestPackedSizes(t *testing.T) {
	for _, n := range []uint64{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32} {
		back, rest := unpack(t, appendPackUint(nil, n))
		assert.Equal(t, int(n), back)
		assert.Empty(t, rest)
	}
	for _, n := range []int{-1, -32, -33, -70000, 5} {
		back, _ := unpack(t, appendPackInt(nil, n))
		assert.Equal(t, n, back)
	}
	for _, n := range []int{0, 31, 32, 255, 256, 65535, 65536} {
		text := string(make([]byte, n))
		back, _ := unpack(t, appendPackText(nil, text))
		assert.Equal(t, text, back)
		b := appendPackArray(nil, n)
		for range n {
			b = append(b, 1)
		}
		back, rest := unpack(t, b)
		assert.Len(t, back, n)
		assert.Empty(t, rest)
	}
}
