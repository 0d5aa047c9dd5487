package windows

// HostPages are the host pages of one pool, by what they are for.
type HostPages struct {
	Contents int // what the device has evicted: the secondary tier
	Ahead    int // copies that are made before a page is evicted, when the tier is full
	Save     int // bytes on their way to a store
}

// Total is how many pages there are.
func (h HostPages) Total() int { return h.Contents + h.Ahead + h.Save }

// aheadShare is the part of a pool's pages, of the tier that has fewer, that copies ahead of
// demand have: an eighth. Bursts take less (bench/DATAPLANE.md).
const aheadShare = 8

// saveShare is the part of a pool's host pages that a store gets at most: a quarter.
const saveShare = 4

// AheadPages is how many host pages are for copies ahead of demand in a pool that has so many
// pages for contents.
func AheadPages(n PageCounts) int {
	return (min(n.Primary, n.Secondary) + aheadShare - 1) / aheadShare
}

// DivideHost divides the host pages of a pool, n.Secondary, as Split gives them, by what they are
// for. save is how many a store asks for; it gets a quarter at most, but one of two. Copies ahead
// of demand, with ahead, get a ninth of the rest, or an eighth of the device pages if that is less.
// One page or more is for contents.
func DivideHost(n PageCounts, ahead bool, save int) HostPages {
	h := HostPages{Save: min(save, max(n.Secondary/saveShare, min(1, n.Secondary-1)))}
	rest := n.Secondary - h.Save
	if ahead && rest > 0 {
		h.Ahead = min((n.Primary+aheadShare-1)/aheadShare, (rest+aheadShare-1)/(aheadShare+1))
	}
	h.Contents = rest - h.Ahead
	return h
}

// What an engine keeps beside the pages, in bytes, measured with full pools of 20,000 to 200,000
// pages of 16 and 32 tokens (TestMetadata of the root package).
const (
	engineRecords = 4 << 20
	pageRecords   = 136 // of a device page and its block, without tokens
	hostRecords   = 400 // of a host page and its block; the tree and the offloader grow by doubling
	tokenRecord   = 4   // of a token of a block
)

// MetadataBytes is about what an engine keeps beside pages of these counts when all have
// contents.
func MetadataBytes(counts []PageCounts, tokensPerBlock int) int64 {
	bytes := int64(engineRecords)
	for _, n := range counts {
		bytes += int64(n.Primary)*int64(pageRecords+tokenRecord*tokensPerBlock) +
			int64(n.Secondary)*int64(hostRecords+tokenRecord*tokensPerBlock)
	}
	return bytes
}
