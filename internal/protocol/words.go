package protocol

import "math"

// BlockID names a block of the tree while it is there; ids are reused afterwards.
type BlockID int32

// NoBlock is the absence of a block.
const NoBlock BlockID = -1

// Use is the time at which a reference to a page ended, on a logical clock:
// later for each later request and, within one request, for each later sequence.
// The zero Use is before all others.
//
// A sequence's use has two halves, which Early and Next make and no one else
// takes apart: its low bit is set for the pages that the sequence held, and clear
// for pages that it only read and gave back before it had pages of its own: the
// source of a copy, and a page replaced by a copy on write. Pools and the
// offloader compare the halves as one time where the depths of two pages differ,
// and evict the early one first where the depths are equal.
type Use uint64

// Next returns the use of the next sequence: odd, and later than u and its early
// half.
func (u Use) Next() Use { return u&^1 + 3 }

// Early returns the early half of u.
func (u Use) Early() Use { return u &^ 1 }

// Moment returns the time of u without its half: u and u.Early() are of one
// moment.
func (u Use) Moment() uint64 { return uint64(u) >> 1 }

// Tenant is whose account in a pool a page is on: a salt that has a quota, or
// OtherTenants. Nothing crosses a salt, so a page has one tenant at a time.
type Tenant uint16

// OtherTenants is everyone who has no quota of his own, and without quotas
// everyone.
const OtherTenants Tenant = 0

// AnyTenant stands, in an Audit, for a page of which nobody says whose it is.
const AnyTenant Tenant = math.MaxUint16
