package trace

// Block sizes that are taken where the lines leave the choice.
const (
	mooncakeBlock = 512 // of all published hash_ids files
	agentBlock    = 64  // of the larger published hash_runs file
)

// bounds collects what the lines say about the tokens of a block.
type bounds struct {
	ids         bool  // the file uses hash_ids, whose last block may be partial
	least, most int64 // most 0: no bound
}

// add takes the bounds of a prompt of p tokens that lists n blocks.
func (b *bounds) add(p, n int64, ids bool) {
	b.ids = ids
	if n == 0 {
		return
	}
	var most int64
	switch {
	case !ids:
		most = p / n
	case n > 1:
		most = (p - 1) / (n - 1) // the greatest b with ⌈p/b⌉ ≥ n
	}
	if most > 0 || !ids {
		if b.most == 0 || most < b.most {
			b.most = most
		}
	}
	if ids {
		b.least = max(b.least, (p+n-1)/n)
	}
}

// tokens is the largest power of two within the bounds; 0 if there is none.
func (b *bounds) tokens() int {
	if b.ids && b.least <= mooncakeBlock && (b.most == 0 || b.most >= mooncakeBlock) {
		return mooncakeBlock
	}
	if b.most == 0 {
		if !b.ids {
			return agentBlock
		}
		size := mooncakeBlock
		for int64(size) < b.least {
			size *= 2
		}
		return size
	}
	size := 2
	for int64(size)*2 <= b.most {
		size *= 2
	}
	if int64(size) > b.most {
		return 0
	}
	return size
}

// fits reports whether a prompt of p tokens can list n blocks of size tokens.
func (r *record) fits(n int64, size int) bool {
	if r.IDs != nil {
		return n <= (r.InputLength+int64(size)-1)/int64(size)
	}
	return n <= r.InputLength/int64(size)
}
