package publish

// AppendAIBrix writes a batch as AIBrix 0.7 reads it, and returns the number of events.
// Events are arrays, which is vLLM's older form, with one block each: AIBrix gives
// every block of an event the event's parent. It has no tiers and deletes a block
// that is removed from any of them, so a block that moves is not told of. It knows
// neither salts nor items, and takes the adapter from the label of the pod: the view
// must be restricted by Config.Only.
func AppendAIBrix(to []byte, b *Batch) (out []byte, count int) {
	var list []byte
	for i := range b.Changes {
		c := &b.Changes[i]
		switch c.Kind {
		case Stored:
			list = b.appendStoredArrays(list, c)
			count += len(c.Blocks)
		case Removed:
			for j := range c.Blocks {
				list = appendPackText(appendPackArray(list, 3), "BlockRemoved")
				list = appendNames(list, c.Blocks[j:j+1])
				list = appendPackText(list, "GPU")
			}
			count += len(c.Blocks)
		case Cleared:
			list = appendPackText(appendPackArray(list, 1), "AllBlocksCleared")
			count++
		case TierChanged, PriorityChanged, Created:
		}
	}
	return b.append(to, list, count), count
}

// appendStoredArrays writes an event for each block of a change. The eight elements are
// those of vLLM's older struct, in its order: type, names, parent, tokens, block size,
// lora_id, medium and lora_name.
func (b *Batch) appendStoredArrays(to []byte, c *Change) []byte {
	// single is the change cut to one block, whose parent is the block before.
	single := *c
	for i := range c.Blocks {
		single.Blocks = c.Blocks[i : i+1]
		to = appendPackText(appendPackArray(to, 8), "BlockStored")
		to = appendNames(to, single.Blocks)
		to = appendParent(to, &single)
		to = appendTokens(to, single.Blocks)
		to = appendPackUint(to, uint64(b.TokensPerBlock))
		to = append(to, packNil)
		// The tier is always told as the device: AIBrix reads none, and a block in host memory
		// is a hit as well.
		to = appendPackText(to, "GPU")
		to = appendLoRA(to, &c.Namespace)
		single.Parent, single.HasParent = c.Blocks[i].Name, true
	}
	return to
}
