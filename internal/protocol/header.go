package protocol

// Header is embedded in every request that the coordinator sends to the tree, a
// pool, the offloader or the device. Epoch is the number of the coordinator's
// life in which it sent the request: the coordinator starts a new epoch after a
// failure and drops replies to requests of an older one.
type Header struct {
	Epoch uint32
}

// RequestEpoch returns the epoch in which the request was sent.
func (h *Header) RequestEpoch() uint32 { return h.Epoch }
