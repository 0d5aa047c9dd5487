package refusals

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Items refuses items that are not in a prompt of so many tokens, or that overlap. They may touch;
// a token that is covered has one symbol.
func Items(items []messages.MultimodalItem, tokens int) error {
	if len(items) == 0 {
		return nil
	}
	// Items come in any order; sorted, only neighbours can overlap.
	order := slices.Clone(items)
	slices.SortFunc(order,
		func(a, b messages.MultimodalItem) int { return cmp.Compare(a.Start, b.Start) })
	end := 0
	for i, item := range order {
		switch {
		// The length first: the next two cases compute the end of the item from it.
		case item.Length < 1:
			return New(messages.ErrBadRequest, "multimodal item at %d has length %d", item.Start,
				item.Length)
		// Written as a difference, so that a huge length cannot overflow into a valid end.
		case item.Start < 0 || item.Start >= tokens || item.Length > tokens-item.Start:
			return New(messages.ErrBadRequest,
				"multimodal item [%d, %d+%d) leaves the prompt of %d tokens", item.Start, item.Start,
				item.Length, tokens)
		case i > 0 && item.Start < end:
			return New(messages.ErrBadRequest, "multimodal items overlap at %d", item.Start)
		}
		end = item.Start + item.Length
	}
	return nil
}

// Namespace refuses the name of an adapter that is said not to be there: a host that forgot HasLoRA
// must not share with the base model. The two would otherwise share a namespace, and blocks of one
// would be found for the other. The opposite, an adapter with an empty name, is allowed: none and
// empty are different namespaces.
func Namespace(n *messages.Namespace) error {
	if n.LoRA != "" && !n.HasLoRA {
		return New(messages.ErrBadRequest, "LoRA adapter %q without HasLoRA", n.LoRA)
	}
	return nil
}
