package gpu

import "github.com/kvactor/kvactor/messages"

// Sharded is a device that stands for several, each of which holds its share of every
// page; Info.Ranks says how many. Package gpu/group makes one.
type Sharded interface {
	// HostShare is the memory of one rank's share of a host page, nil if there is no
	// such page or rank. The caller orders its access as with Device.HostBytes.
	HostShare(rank int, p Pool, page messages.PageID) []byte
}

// Ranks is the number of devices that a device stands for, 1 or more.
func Ranks(d Device) int { return max(1, d.Info().Ranks) }

// HostShare is the memory of one rank's share of a host page. That of a device which
// is one is the whole page, of rank 0.
func HostShare(d Device, rank int, p Pool, page messages.PageID) []byte {
	if s, ok := d.(Sharded); ok {
		return s.HostShare(rank, p, page)
	}
	if rank != 0 {
		return nil
	}
	return d.HostBytes(p, page)
}

// HostPage returns the bytes of a host page as AppendHostPage gives them: the memory
// itself if there is one share, else a copy.
func HostPage(d Device, p Pool, page messages.PageID) []byte {
	if Ranks(d) == 1 {
		return d.HostBytes(p, page)
	}
	return AppendHostPage(nil, d, p, page)
}

// AppendHostPage appends the bytes of a host page, the shares of all ranks one behind
// the other in their order.
func AppendHostPage(dst []byte, d Device, p Pool, page messages.PageID) []byte {
	for r := range Ranks(d) {
		dst = append(dst, HostShare(d, r, p, page)...)
	}
	return dst
}

// WriteHostPage writes the bytes of a host page, in the order of AppendHostPage.
func WriteHostPage(d Device, p Pool, page messages.PageID, bytes []byte) {
	for r := range Ranks(d) {
		n := copy(HostShare(d, r, p, page), bytes)
		bytes = bytes[n:]
	}
}

// HostWatcher is a device that is told of the host's own accesses to host pages: package gpu/check
// makes one, and a group of them is one.
type HostWatcher interface {
	HostRead(Slot) (end func())
	HostWrite(Slot) (end func())
}

// HostRead tells a device that watches accesses that the host reads a host page until end is
// called.
func HostRead(d Device, s Slot) (end func()) { return watched(d, s, HostWatcher.HostRead) }

// HostWrite tells a device that watches accesses that the host writes a host page until end is
// called.
func HostWrite(d Device, s Slot) (end func()) { return watched(d, s, HostWatcher.HostWrite) }

// watched opens a scope on a device that watches accesses.
func watched(d Device, s Slot, open func(HostWatcher, Slot) func()) (end func()) {
	if w, ok := d.(HostWatcher); ok {
		return open(w, s)
	}
	return func() {}
}
