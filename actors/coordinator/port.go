package coordinator

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// Port carries the coordinator's messages. What goes to the tree, a pool or the
// offloader comes back as the same record through Answered; nothing else does.
type Port interface {
	Tree(message any)
	Pool(work *protocol.PoolWork)
	PoolAudit(audit *protocol.Audit)
	ResizePool(resize *protocol.ResizePool)
	RebuildPool(rebuild *protocol.RebuildPool)
	Offloader(message any)
	// Events passes a request on whose answer the events actor gives itself; keys
	// are those of the tree, for a snapshot.
	Events(request, sender any, keys []*protocol.Changes)
	// Begin tells the sender that its request is being served; false drops the
	// request, because its caller has gone.
	Begin(sender any) bool
	// Park tells the sender that its request waits for pages; false drops the
	// request, because its caller has gone. Waits asks that again.
	Park(sender any) bool
	Waits(sender any) bool
	// Reply gives a request back to its sender, answered.
	Reply(request, sender any)
	// Abort tells the sender that its request could not be served.
	Abort(request, sender any, cause error)
	// Now is the time by which timers act.
	Now() time.Duration
}
