package publish

import "github.com/kvactor/kvactor/messages"

// PolledEvent is an event as TensorRT-LLM's get_kv_cache_events returns it.
type PolledEvent struct {
	ID         uint64 `json:"event_id"`
	Data       any    `json:"data"` // PolledCreated, PolledStored, PolledRemoved or PolledUpdated
	WindowSize int    `json:"window_size"`
}

// PolledCreated says how many pages there are, device first.
type PolledCreated struct {
	Type           string `json:"type"`
	BlocksPerLevel [2]int `json:"num_blocks_per_cache_level"`
}

// PolledStored has consecutive blocks. ParentHash is null for the start of a prompt;
// readers need the key.
type PolledStored struct {
	Type       string        `json:"type"`
	ParentHash *uint64       `json:"parent_hash"`
	Blocks     []PolledBlock `json:"blocks"`
	LoRAName   string        `json:"lora_name,omitempty"`
}

// PolledBlock is a stored block.
type PolledBlock struct {
	Type       string        `json:"type"`
	BlockHash  uint64        `json:"block_hash"`
	Tokens     []PolledToken `json:"tokens"`
	CacheLevel int           `json:"cache_level"`
	Priority   int           `json:"priority"`
	Multimodal []PolledItem  `json:"mm_keys,omitempty"`
	CacheSalt  string        `json:"cache_salt,omitempty"`
}

// PolledToken is a token. ExtraID tells apart tokens that an item stands for; items are
// in Multimodal instead, so it is always 0.
type PolledToken struct {
	Type    string `json:"type"`
	TokenID int32  `json:"token_id"`
	ExtraID int    `json:"token_extra_id"`
}

// PolledItem is a multimodal item in a block.
type PolledItem struct {
	Type        string `json:"type"`
	Hash        string `json:"hash"`
	StartOffset int    `json:"start_offset"`
}

// PolledRemoved has blocks that are not published any more.
type PolledRemoved struct {
	Type        string   `json:"type"`
	BlockHashes []uint64 `json:"block_hashes"`
}

// PolledUpdated is a block with a new level or a new priority.
type PolledUpdated struct {
	Type       string      `json:"type"`
	BlockHash  uint64      `json:"block_hash"`
	CacheLevel *PolledDiff `json:"cache_level,omitempty"`
	Priority   *PolledDiff `json:"priority,omitempty"`
}

// PolledDiff is a value before and after.
type PolledDiff struct {
	Type string `json:"type"`
	Old  int    `json:"old_value"`
	New  int    `json:"new_value"`
}

// TRTLLM numbers events for readers that poll. A reader wants the event created before
// any other, so the first changes it gets are those of a view from its start, or
// Created and View.All.
type TRTLLM struct {
	// WindowSize is the attention window of the published blocks: with full attention
	// the longest sequence. Readers keep only the largest window.
	WindowSize int
	// next is the id of the next event: ids are consecutive from 0.
	next uint64
}

// Append adds the events of changes. Cleared needs none: the blocks were removed.
func (t *TRTLLM) Append(to []PolledEvent, changes []Change) []PolledEvent {
	for i := range changes {
		c := &changes[i]
		var data any
		switch c.Kind {
		case Created:
			data = PolledCreated{"created", [2]int{c.Pages.Primary, c.Pages.Secondary}}
		case Stored:
			data = polledStored(c)
		case Removed:
			names := make([]uint64, len(c.Blocks))
			for j := range c.Blocks {
				names[j] = c.Blocks[j].Name
			}
			data = PolledRemoved{"removed", names}
		case TierChanged:
			// Levels are counted like tiers: 0 is the device, 1 the host.
			data = PolledUpdated{Type: "updated", BlockHash: c.Blocks[0].Name,
				CacheLevel: &PolledDiff{"event_diff", int(c.OldTier), int(c.Tier)}}
		case PriorityChanged:
			data = PolledUpdated{Type: "updated", BlockHash: c.Blocks[0].Name,
				Priority: &PolledDiff{"event_diff", int(c.OldPriority), int(c.Blocks[0].Priority)}}
		case Cleared:
			continue
		}
		to = append(to, PolledEvent{ID: t.next, Data: data, WindowSize: t.WindowSize})
		t.next++
	}
	return to
}

// polledStored makes the event of consecutive blocks. The event points to the parent's name
// in the change, so the change must not be written to afterwards.
func polledStored(c *Change) PolledStored {
	// Each block repeats the salt; readers drop an event whose blocks have two.
	s := PolledStored{Type: "stored", Blocks: make([]PolledBlock, len(c.Blocks)),
		LoRAName: c.Namespace.LoRA}
	if c.HasParent {
		s.ParentHash = &c.Parent
	}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		out := PolledBlock{
			Type: "stored_block", BlockHash: b.Name, Tokens: make([]PolledToken, len(b.Tokens)),
			CacheLevel: int(c.Tier), Priority: int(b.Priority), Multimodal: polledItems(b.Covers),
			CacheSalt: c.Namespace.Salt,
		}
		for j, tok := range b.Tokens {
			// TensorRT-LLM calls a token with its extra id unique.
			out.Tokens[j] = PolledToken{Type: "unique_token", TokenID: int32(tok)}
		}
		s.Blocks[i] = out
	}
	return s
}

// polledItems lists the items of a block. The offset is that of the item's token at
// the block's start, as TensorRT-LLM counts it: 0 if the item begins in the block.
func polledItems(covers []messages.Cover) (list []PolledItem) {
	for _, item := range itemsOf(covers) {
		list = append(list, PolledItem{"mm_key", item.id, item.first})
	}
	return list
}
