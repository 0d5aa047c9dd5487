package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// lanes is the device as the offloader uses it: a copy stream for each lane, one
// handle for each pool.
type lanes struct {
	device  gpu.Device
	streams [laneCount]gpu.Stream
	pools   []gpu.Pool // by PoolID
	pages   []int      // by PoolID, device pages now
	batch   gpu.Batch  // reused
	// last is the latest ticket of each stream that the engine was told of.
	last map[gpu.Stream]messages.Ticket
}

const laneCount = 4

// laneNames are those of the streams, for reports of the device.
var laneNames = [laneCount]string{offloader.Offload: "offload", offloader.Onboard: "onboard", offloader.Duplicate: "copy", offloader.Bulk: "onboard much"}

// spareShare is the part of a pool's pages that host memory has beyond what the
// configuration gives it, so that pages near eviction can be copied ahead of
// demand when it is full, as it is after a while: an eighth, of the tier that has
// fewer pages. Bursts take less (bench/DATAPLANE.md).
const spareShare = 8

// sparePages are those of one pool.
func sparePages(known *coordinator.Config, pool int) int {
	n := known.Counts[pool]
	if !known.Ahead {
		return 0
	}
	return (min(n.Primary, n.Secondary) + spareShare - 1) / spareShare
}

// openLanes makes streams and pools on the device.
func openLanes(device gpu.Device, known *coordinator.Config) (*lanes, error) {
	pools, counts := known.Pools, known.Counts
	l := &lanes{device: device, last: map[gpu.Stream]messages.Ticket{}}
	for i, name := range laneNames {
		stream, err := device.NewStream(name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		l.streams[i] = stream
	}
	total := int64(0)
	for i, p := range pools {
		total += p.PageBytes() * int64(counts[i].Primary)
		l.pages = append(l.pages, counts[i].Primary)
	}
	for i, p := range pools {
		handle, err := device.CreatePool(gpu.PoolSpec{
			Name: p.Name, PageBytes: p.PageBytes(), DevicePages: counts[i].Primary, HostPages: counts[i].Secondary + sparePages(known, i),
			MaxDevicePages: int(min(total/p.PageBytes(), windows.MaxPages)),
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("pool %s: %w", p.Name, err), l.close(context.Background()))
		}
		l.pools = append(l.pools, handle)
	}
	return l, nil
}

// close gives the memory back when nothing that the engine was told of uses it
// any more. When the context ends before, the memory stays the device's: what is
// given back others may get, and the copies and kernels under way would write to it.
func (l *lanes) close(ctx context.Context) error {
	waited := l.sync(ctx)
	if waited != nil && ctx.Err() != nil {
		return fmt.Errorf("the pools keep their memory, copies or kernels may still use it: %w", waited)
	}
	problems := []error{waited}
	for _, p := range l.pools {
		problems = append(problems, l.device.DestroyPool(p))
	}
	l.pools = nil
	return errors.Join(problems...)
}

// saw remembers a ticket.
func (l *lanes) saw(t messages.Ticket) {
	if !t.IsZero() && t.Seq > l.last[t.Stream].Seq {
		l.last[t.Stream] = t
	}
}

// idle tells whether everything that was submitted to a lane has passed.
func (l *lanes) idle(lane offloader.Lane) bool {
	last, used := l.last[l.streams[lane]]
	return !used || l.device.Done(last)
}

// sync waits for everything that the engine was told of.
func (l *lanes) sync(ctx context.Context) error {
	var problems []error
	for _, t := range l.last {
		problems = append(problems, l.device.Sync(ctx, t))
	}
	return errors.Join(problems...)
}

// resize gives the pools other page counts when all tickets have passed: first
// those that shrink, so that there is memory for those that grow.
func (l *lanes) resize(m *protocol.ResizeDevice) error {
	for _, t := range m.Waits {
		if err := l.device.Sync(context.Background(), t); err != nil {
			return err
		}
	}
	for _, shrink := range []bool{true, false} {
		for p, n := range m.Pages {
			if n == l.pages[p] || n < l.pages[p] != shrink {
				continue
			}
			if err := l.device.Resize(l.pools[p], n); err != nil {
				return fmt.Errorf("pool %d: %w", p, err)
			}
			l.pages[p] = n
		}
	}
	return nil
}

// submit carries one submission to its stream; failed is the index of the copy
// that the device refused, −1 if none.
func (l *lanes) submit(s *offloader.Submission) (ticket messages.Ticket, failed int) {
	b := &l.batch
	b.Label, b.Waits, b.Copies = s.Label, s.Waits, b.Copies[:0]
	for i := range s.Copies {
		c := &s.Copies[i]
		b.Copies = append(b.Copies, gpu.Copy{
			Src: l.slot(c.Src), Dst: l.slot(c.Dst), SrcOffset: c.SrcOffset, DstOffset: c.DstOffset, Bytes: c.Bytes, Pages: c.Pages,
		})
	}
	ticket, err := l.device.Submit(l.streams[s.Lane], b)
	l.saw(ticket)
	if err == nil {
		return ticket, -1
	}
	var refused *gpu.CopyError
	if errors.As(err, &refused) {
		return ticket, refused.Index
	}
	return messages.Ticket{}, 0
}

func (l *lanes) slot(s offloader.Slot) gpu.Slot {
	return gpu.Slot{Pool: l.pools[s.Pool], Tier: s.Tier, Page: s.Page}
}
