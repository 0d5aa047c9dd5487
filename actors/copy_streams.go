package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// copyStreams is the device as the offloader uses it: a copy stream for each lane,
// one handle for each pool. Lanes are streams of their own so that copies in one
// direction never wait behind those in the other, and a few pages never behind many:
//
//	offload       device to host, evicted pages and copies ahead of demand
//	onboard       host to device, for admissions that need few pages
//	onboard bulk  host to device, for those that need many
//	copy          device to device: partial reuse, copies on write, moved pages
//	export        device to staging memory of hand-overs
//	import        staging memory to device
//
// A copyStreams belongs to the offloader's actor, and when that has stopped to whoever
// ends the engine. Tasks beside the actor, which wait for the device, get copies of what
// they need; pools never changes while the actor runs.
type copyStreams struct {
	device  gpu.Device
	streams []gpu.Stream // by offloader.Lane, then exportStream and importStream
	pools   []gpu.Pool   // by PoolID
	pages   []int        // by PoolID, device pages now
	// pageBytes are by PoolID.
	pageBytes []int64
	batch     gpu.Batch // reused
	// last is the latest ticket of each stream that the engine was told of.
	last map[gpu.Stream]messages.Ticket
	// lost is told of an error after which the device answers nothing else, and warn of copies
	// that it has refused, the number of all so far with it.
	lost func(error)
	warn func(refused int64, err error)
	// refused counts the copies that the device has refused. Statistics are read outside of
	// the offloader's actor.
	refused atomic.Int64
}

// The streams of hand-overs, behind those of the lanes.
const (
	exportStream = offloader.Bulk + 1 + iota
	importStream
)

// streamNames are the names of the streams, for reports of the device.
var streamNames = [...]string{offloader.Offload: "offload", offloader.Onboard: "onboard",
	offloader.Duplicate: "copy", offloader.Bulk: "onboard bulk", exportStream: "export",
	importStream: "import"}

// openStreams makes streams and pools on the device. When it fails it gives back
// what it has made.
func openStreams(
	config *Config, known *coordinator.Config, hostPages []windows.HostPages,
) (*copyStreams, error) {
	s := &copyStreams{device: config.Device, last: map[gpu.Stream]messages.Ticket{}}
	if err := s.open(config, known, hostPages); err != nil {
		_, failed := s.close(context.Background())
		return nil, errors.Join(err, failed)
	}
	return s, nil
}

func (s *copyStreams) open(
	config *Config, known *coordinator.Config, hostPages []windows.HostPages,
) error {
	for _, name := range streamNames { // names are for the device's reports
		stream, err := s.device.NewStream(name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		s.streams = append(s.streams, stream)
	}
	// A pool may grow to all of the device's memory: that reserves addresses only.
	memory, err := s.device.Memory()
	if err != nil {
		return err
	}
	for i := range known.Pools {
		s.pages = append(s.pages, known.Counts[i].Primary)
		s.pageBytes = append(s.pageBytes, known.Pools[i].PageBytes())
	}
	for i, p := range known.Pools {
		n, given := known.Counts[i], config.memoryOf(i)
		spec := gpu.PoolSpec{
			Name: p.Name, PageBytes: p.PageBytes(), DevicePages: n.Primary, HostPages: hostPages[i].Total(),
			MaxDevicePages: int(min(memory.Total/p.PageBytes(), windows.MaxPages)),
			Tensors:        given.Tensors, HostMemory: given.Host, Shared: given.Shared,
		}
		if given.Tensors != nil {
			spec.MaxDevicePages = n.Primary // there is no more of it
		}
		handle, err := s.device.CreatePool(spec)
		if err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
		s.pools = append(s.pools, handle)
	}
	return nil
}

// close gives memory and streams back when nothing that the engine was told of uses
// them any more. When the context ends before, given is false: others may get
// memory that is given back, and the copies and kernels under way would write to it.
func (s *copyStreams) close(ctx context.Context) (given bool, err error) {
	waited := syncAll(ctx, s.device, s.tickets())
	if waited != nil && ctx.Err() != nil {
		return false, fmt.Errorf("the pools keep their memory, copies or kernels may still use it: %w",
			waited)
	}
	problems := []error{waited}
	for _, p := range s.pools {
		problems = append(problems, s.device.DestroyPool(p))
	}
	for _, stream := range s.streams {
		problems = append(problems, s.device.DestroyStream(stream))
	}
	s.pools, s.streams = nil, nil
	clear(s.last)
	return true, errors.Join(problems...)
}

// note keeps a ticket if it is the latest of its stream: a stream runs in order, so the
// others have passed when it has.
func (s *copyStreams) note(t messages.Ticket) {
	if !t.IsZero() && t.Seq > s.last[t.Stream].Seq {
		s.last[t.Stream] = t
	}
}

// idle tells whether everything that was submitted to a lane has passed.
func (s *copyStreams) idle(lane offloader.Lane) bool {
	last, used := s.last[s.streams[lane]]
	return !used || s.device.Done(last)
}

// tickets are the latest of all streams that the engine was told of.
func (s *copyStreams) tickets() []messages.Ticket {
	list := make([]messages.Ticket, 0, len(s.last))
	for _, t := range s.last {
		list = append(list, t)
	}
	return list
}

// syncAll waits until all tickets have passed. It goes on after an error: the device
// may serve the other streams.
func syncAll(ctx context.Context, device gpu.Device, tickets []messages.Ticket) error {
	var problems []error
	for _, t := range tickets {
		problems = append(problems, device.Sync(ctx, t))
	}
	return errors.Join(problems...)
}

// resize gives pools other page counts: first those that shrink, so that there is memory for
// those that grow. When the device refuses, from says how far it came; the coordinator then makes
// the pools that grew smaller again.
//
// It runs on a task of its own, and shares nothing with the actor but the device, which serves any
// goroutine, and the handles, which do not change while the actor runs.
func resize(device gpu.Device, pools []gpu.Pool, from, to []int) error {
	for _, shrink := range []bool{true, false} {
		for p, n := range to {
			if n == from[p] || n < from[p] != shrink {
				continue
			}
			if err := device.Resize(pools[p], n); err != nil {
				return fmt.Errorf("pool %d: %w", p, err)
			}
			from[p] = n
		}
	}
	return nil
}

// submit carries one submission to its stream; failed is the index of the copy
// that the device refused, −1 if none.
func (s *copyStreams) submit(x *offloader.Submission) (ticket messages.Ticket, failed int) {
	b := &s.batch
	b.Label, b.Waits, b.Copies = x.Lane.String(), x.Waits, b.Copies[:0]
	for i := range x.Copies {
		c := &x.Copies[i]
		b.Copies = append(b.Copies, gpu.Copy{
			Src: s.slot(c.Src), Dst: s.slot(c.Dst), SrcOffset: c.SrcOffset, DstOffset: c.DstOffset,
			Bytes: c.Bytes, Pages: c.Pages,
			Zero: c.Zero,
		})
	}
	return s.submitTo(s.streams[x.Lane], b)
}

// submitTo is submit for a batch of the device.
func (s *copyStreams) submitTo(stream gpu.Stream, b *gpu.Batch) (ticket messages.Ticket,
	failed int) {
	ticket, err := s.device.Submit(stream, b)
	s.note(ticket)
	if err == nil {
		return ticket, -1
	}
	s.check(err)
	// The log has the first refusal, the second, the fourth and so on: a device that refuses all
	// copies would fill it.
	if n := s.refused.Add(1); n&(n-1) == 0 && s.warn != nil {
		s.warn(n, err)
	}
	// The device has taken the copies before the refused one, and says which that is. Any
	// other error means that it has taken none: the first counts as refused.
	var refused *gpu.CopyError
	if errors.As(err, &refused) {
		return ticket, refused.Index
	}
	return messages.Ticket{}, 0
}

// check tells the engine of the end of its device.
func (s *copyStreams) check(err error) {
	if errors.Is(err, gpu.ErrDeviceLost) {
		s.lost(err)
	}
}

func (s *copyStreams) slot(x offloader.Slot) gpu.Slot {
	return gpu.Slot{Pool: s.pools[x.Pool], Tier: x.Tier, Page: x.Page}
}
