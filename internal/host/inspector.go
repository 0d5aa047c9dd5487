package host

import "github.com/kvactor/kvactor/gpu"

// Inspector reads pages of a device that has nothing under way: device memory
// can only be seen by kernels, so it launches one for each page. Launcher is
// best the device itself, not a hazard checker around it: that everything has
// drained is not known to the checker.
type Inspector struct {
	Launcher gpu.Launcher
	Stream   gpu.Stream
	Drain    func() // runs the kernel

	page []byte
}

// Bytes gives the bytes of a slot, until the next call; nil if there is no such
// page.
func (i *Inspector) Bytes(slot gpu.Slot) []byte {
	seen := false
	_, err := i.Launcher.Launch(i.Stream, gpu.Kernel{
		Label: "inspect", Reads: []gpu.Access{{Slot: slot}},
		Run: func(bytes gpu.PageBytes) {
			i.page = append(i.page[:0], bytes(slot)...)
			seen = true
		},
	})
	if err != nil {
		return nil
	}
	i.Drain()
	if !seen {
		return nil
	}
	return i.page
}
