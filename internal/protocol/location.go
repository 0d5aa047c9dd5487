package protocol

import "github.com/kvactor/kvactor/messages"

// Location is where one pool keeps one block: nowhere, on a device page, or only in
// host memory. The values of device pages are their page numbers.
type Location int32

// Nowhere is the Location of a block that the pool does not hold.
const Nowhere = Location(messages.NoPage)

// OnDevice returns the Location of device page p.
func OnDevice(p messages.PageID) Location { return Location(p) }

// OnHost returns the Location of host page p.
func OnHost(p messages.PageID) Location { return Location(-2 - p) }

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
