package publish

import "github.com/kvactor/kvactor/messages"

// Batch is what the encoders of vLLM's format write in one message.
// The encoders append to a slice of the caller's and keep nothing, so that a publisher
// can write every batch to one buffer.
type Batch struct {
	Time           float64 // seconds since 1970
	Rank           int     // data parallel rank
	TokensPerBlock int
	Changes        []Change
	// Groups adds group_idx 0 and the kind full_attention to each event, as vLLM does.
	// Readers need neither, and drop the blocks of a model that has only windows if it
	// has the kind of one, so it is off by default.
	Groups bool
}

// medium names a tier as vLLM does.
func medium(t messages.Tier) string {
	switch t {
	case messages.Primary:
		return "GPU"
	case messages.Secondary:
		return "CPU"
	default:
		return "STORAGE"
	}
}

// AppendVLLM writes a batch as vLLM 0.33 does, with events as maps, and returns the
// number of events. A block that moves is stored in its new tier, with its tokens, and
// then removed from the old one: every reader takes this order.
func AppendVLLM(to []byte, b *Batch) (out []byte, count int) {
	var list []byte
	for i := range b.Changes {
		c := &b.Changes[i]
		count++
		switch c.Kind {
		case Stored:
			list = b.appendStored(list, c)
		case Removed:
			list = b.appendRemoved(list, c.Blocks, c.Tier)
		case TierChanged:
			list = b.appendStored(list, c)
			list = b.appendRemoved(list, c.Blocks, c.OldTier)
			count++
		case Cleared:
			list = appendPackText(appendPackMap(list, 1), "type")
			list = appendPackText(list, "AllBlocksCleared")
		case PriorityChanged, Created: // vLLM has no event for either.
			count--
		}
	}
	return b.append(to, list, count), count
}

// append writes a batch of so many events. The batch is an array of three elements always: a
// reader of vLLM's loses one of two, AIBrix one whose rank is nil.
func (b *Batch) append(to, list []byte, count int) []byte {
	to = appendPackFloat(appendPackArray(to, 3), b.Time)
	to = append(appendPackArray(to, count), list...)
	return appendPackInt(to, b.Rank)
}

// appendStored writes a map with the keys in the order in which vLLM has them. lora_id is
// one that readers have dropped, but some look for it.
func (b *Batch) appendStored(to []byte, c *Change) []byte {
	// A map says its length first, so the optional keys are counted before any is written.
	keys := 9
	if c.Namespace.Salt != "" {
		keys++
	}
	if b.Groups {
		keys += 2
	}
	to = appendPackMap16(to, keys)
	to = appendPackText(appendPackText(to, "type"), "BlockStored")
	to = appendNames(appendPackText(to, "block_hashes"), c.Blocks)
	to = appendParent(appendPackText(to, "parent_block_hash"), c)
	to = appendTokens(appendPackText(to, "token_ids"), c.Blocks)
	to = appendPackUint(appendPackText(to, "block_size"), uint64(b.TokensPerBlock))
	to = append(appendPackText(to, "lora_id"), packNil)
	to = appendPackText(appendPackText(to, "medium"), medium(c.Tier))
	to = appendLoRA(appendPackText(to, "lora_name"), &c.Namespace)
	to = appendWireKeys(appendPackText(to, "extra_keys"), c)
	// llm-d keeps salts apart by extra_keys alone, Dynamo by cache_salt alone.
	if salt := c.Namespace.Salt; salt != "" {
		to = appendPackText(appendPackText(to, "cache_salt"), salt)
	}
	if b.Groups {
		to = append(appendPackText(to, "group_idx"), 0)
		to = appendPackText(appendPackText(to, "kv_cache_spec_kind"), "full_attention")
	}
	return to
}

// appendRemoved repeats the tier and the group of the stored event: readers that track
// both remove nothing otherwise.
func (b *Batch) appendRemoved(to []byte, blocks []Block, t messages.Tier) []byte {
	keys := 3
	if b.Groups {
		keys++
	}
	to = appendPackMap(to, keys)
	to = appendPackText(appendPackText(to, "type"), "BlockRemoved")
	to = appendNames(appendPackText(to, "block_hashes"), blocks)
	to = appendPackText(appendPackText(to, "medium"), medium(t))
	if b.Groups {
		to = append(appendPackText(to, "group_idx"), 0)
	}
	return to
}

// appendNames writes the names of blocks as unsigned integers. Dynamo drops an event
// with hashes as bytes, and AIBrix takes other bytes of them than llm-d.
func appendNames(to []byte, blocks []Block) []byte {
	to = appendPackArray(to, len(blocks))
	for i := range blocks {
		to = appendPackUint(to, blocks[i].Name)
	}
	return to
}

// appendParent writes nil for a block that begins a prompt. 0 would be a block.
func appendParent(to []byte, c *Change) []byte {
	if !c.HasParent {
		return append(to, packNil)
	}
	return appendPackUint(to, c.Parent)
}

// appendTokens writes the tokens of all blocks in one list. They are told with each
// store, moves included: llm-d loses a batch with an event that has none.
func appendTokens(to []byte, blocks []Block) []byte {
	n := 0
	for i := range blocks {
		n += len(blocks[i].Tokens)
	}
	to = appendPackArray(to, n)
	for i := range blocks {
		for _, tok := range blocks[i].Tokens {
			to = appendPackUint(to, uint64(tok))
		}
	}
	return to
}

// appendLoRA writes the name of the adapter. It is not in extra_keys, as llm-d takes a
// text there for a multimodal item.
func appendLoRA(to []byte, ns *messages.Namespace) []byte {
	if !ns.HasLoRA {
		return append(to, packNil)
	}
	return appendPackText(to, ns.LoRA)
}

// appendWireKeys writes for each block a list of what it depends on beside its tokens:
// the items in it, and the salt in the first block of a prompt; or nil.
// The order in one list is vLLM's: items first, then the salt. An item is a pair of its id
// and its offset in the block, the salt is a text.
func appendWireKeys(to []byte, c *Change) []byte {
	to = appendPackArray(to, len(c.Blocks))
	for i := range c.Blocks {
		items := itemsOf(c.Blocks[i].Covers)
		n, salted := len(items), c.Namespace.Salt != "" && i == 0 && !c.HasParent
		if salted {
			n++
		}
		if n == 0 {
			to = append(to, packNil)
			continue
		}
		to = appendPackArray(to, n)
		for _, item := range items {
			to = appendPackInt(appendPackText(appendPackArray(to, 2), item.id), item.offset)
		}
		if salted {
			to = appendPackText(to, c.Namespace.Salt)
		}
	}
	return to
}
