//go:build amd64 || arm64

package pool

import (
	"unsafe"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The fields of a Victim for the assembly, which has those of a page by their names.
//
//nolint:unused // by Go
const (
	victimPage     = unsafe.Offsetof(protocol.Victim{}.Page)
	victimBlock    = unsafe.Offsetof(protocol.Victim{}.Block)
	victimDepth    = unsafe.Offsetof(protocol.Victim{}.Depth)
	victimPriority = unsafe.Offsetof(protocol.Victim{}.Priority)
	victimTenant   = unsafe.Offsetof(protocol.Victim{}.Tenant)
	victimUse      = unsafe.Offsetof(protocol.Victim{}.Use)
	victimSize     = unsafe.Sizeof(protocol.Victim{})
	otherTenants   = protocol.OtherTenants
)

// takeFetching is takeEach for a pool beyond the caches, and for pages that adjoin: with each
// page it asks the processor for the record that the page's hint names, and waits for none.
//
// It is implemented in assembly, since Go has no instruction to prefetch. A call of one for
// each page costs 7 ns more. A loop of Go that prefetches the hints of a group of pages before
// it takes them costs 3 ns more: the processor has fewer misses under way between two groups.
// Reading the record instead is the way of fetching_other.go: a processor waits for a read
// after some 250 instructions, and few reads overlap.
//
// The record goes to the second cache only. A processor has few misses under way into its first one, 24 on
// an EPYC of the fourth generation, where this takes half as long, and distances beyond these pay. So that the second cache need not be
// waited for either, the assembly of amd64 notes the pages that hints name in the elements of ids that they
// will have, and goes on with such a page before it has read which one follows: with 100,000 pages, which fit into
// the third cache, a page then costs 4 ns instead of 7.
//
// There are as many victims as ids. Elements of ids from n on may be overwritten. A hint may name no page, or one that the
// pool has no more: a prefetch of an address without memory does nothing.
//
//go:noescape
func takeFetching(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page, bound protocol.Use) (next int32, n int)
