package protocol

import (
	"math"

	"github.com/kvactor/kvactor/messages"
)

// BlockID identifies a block while it is in the tree. Ids of forgotten blocks are
// reused.
type BlockID int32

// NoBlock is no block.
const NoBlock BlockID = -1

// Use is the time at which a reference to a page ended, on a logical clock:
// later for each later request and, within one request, for each later sequence.
// The zero Use is before all others.
//
// The use of a sequence in a request has two halves of one moment. The late half,
// which Next returns, is that of the pages that the sequence held. The early half
// is that of pages that it only read: the source of a copy, and a page that a copy
// on write replaced. Eviction compares moments first, then depths, and then takes
// the early half first. The low bit is the half: set for the late one.
type Use uint64

// Next returns the late half of the moment after u.
func (u Use) Next() Use { return u&^1 + 3 }

// Early returns the early half of the moment of u.
func (u Use) Early() Use { return u &^ 1 }

// Moment returns the moment of u, which its two halves have in common.
func (u Use) Moment() uint64 { return uint64(u) >> 1 }

// Tenant is the owner of a page for quotas: a salt that has a quota of its own, or
// OtherTenants. Prefixes of different salts never share pages, so a page has one
// tenant at a time.
type Tenant uint16

// OtherTenants stands for all salts that have no quota of their own.
const OtherTenants Tenant = 0

// AnyTenant stands, in an Audit, for a page whose tenant the coordinator does not
// know.
const AnyTenant Tenant = math.MaxUint16

// Header is embedded in every request that the coordinator sends to the tree, a
// pool, the offloader or the device. Epoch is the coordinator's epoch
// in which it sent the request: the coordinator starts a new epoch after a
// failure and drops replies to requests of an older one.
type Header struct {
	Epoch uint32
}

// RequestEpoch returns the epoch in which the request was sent.
func (h *Header) RequestEpoch() uint32 { return h.Epoch }

// Location is where one pool keeps one block: nowhere, on a device page, or only in
// host memory. The values of device pages are their page numbers.
type Location int32

// Nowhere is the Location of a block that the pool does not hold.
const Nowhere = Location(messages.NoPage)

// OnDevice returns the Location of device page p.
func OnDevice(p messages.PageID) Location { return Location(p) }

// OnHost returns the Location of host page p.
func OnHost(p messages.PageID) Location { return Location(-2 - p) }

// InHost tells whether it is a host page.
func (l Location) InHost() bool { return l < Nowhere }

// Page returns the page and its tier. ok is false for Nowhere.
func (l Location) Page() (p messages.PageID, t messages.Tier, ok bool) {
	switch {
	case l >= 0:
		return messages.PageID(l), messages.Primary, true
	case l == Nowhere:
		return messages.NoPage, messages.Primary, false
	default:
		return messages.PageID(-2 - l), messages.Secondary, true
	}
}

// AddTicket adds a ticket to a set with one for each stream, the newest: a stream executes in
// order, so that stands for all earlier ones. A set is as small as the number of streams, and is
// searched in full.
func AddTicket(set []messages.Ticket, t messages.Ticket) []messages.Ticket {
	if t.IsZero() {
		return set
	}
	for i := range set {
		if set[i].Stream == t.Stream {
			set[i].Seq = max(set[i].Seq, t.Seq)
			return set
		}
	}
	return append(set, t)
}
