package group

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// MaxRanks is the number of devices that a group may have: more than any machine
// has, and few enough that a call to each of them stays cheap.
const MaxRanks = 64

// Device is a group of devices that is used as one. Its methods may be called by
// any number of goroutines.
//
// Invariants: a live stream or pool of the group is one of each rank. What was queued on
// a stream of the group was queued on all ranks in the same order, unless the group has
// ended.
type Device struct {
	members []gpu.Device // by rank; neither the list nor a member ever changes
	info    gpu.Info     // of the members as they were at the start
	// launchers are the members that run kernels in Go; nil unless all do.
	launchers []gpu.Launcher

	// end is why the group cannot be used any more, nil while it can.
	end atomic.Pointer[error]
	// dead has, by rank, whether the rank answers nothing but errors. It is set before end,
	// so a caller that sees the group ended knows which ranks are left to be waited for.
	dead []atomic.Bool

	// changes serializes CreatePool, Resize and DestroyPool, which take long: two of them
	// at a time could give one pool different sizes on two ranks. Work is queued meanwhile,
	// so it is another lock than mu. It is taken before mu.
	changes sync.Mutex

	// mu covers what is below, and is never held during a call of a member.
	mu      sync.Mutex
	streams streams.Table[*stream]
	joins   gpu.Stream // of Join; 0: not yet
	pools   []*pool    // by gpu.Pool; nil: destroyed
}

var (
	_ gpu.Device   = (*Device)(nil)
	_ gpu.Launcher = (*Device)(nil)
	_ gpu.Sharded  = (*Device)(nil)
)

// New makes a group of devices; rank i is members[i]. The members belong to the group
// from then on: Close closes them. They are of one backend and have equal abilities;
// their speed may differ.
func New(members ...gpu.Device) (*Device, error) {
	if len(members) == 0 || len(members) > MaxRanks {
		return nil, fmt.Errorf("group: %d devices, there may be 1 to %d", len(members), MaxRanks)
	}
	d := &Device{members: slices.Clone(members), dead: make([]atomic.Bool, len(members))}
	for r, m := range members {
		if err := d.validate(r, m); err != nil {
			return nil, err
		}
		if l, ok := m.(gpu.Launcher); ok {
			d.launchers = append(d.launchers, l)
		}
	}
	// Checked wrappers have the method whatever they wrap, and answer an error.
	if n := len(d.launchers); n != 0 && n != len(members) {
		return nil, fmt.Errorf("group: %d of %d devices run kernels in Go", n, len(members))
	}
	// Kept, so that Info needs no rank: it also answers when one is lost.
	d.info = describe(members)
	return d, nil
}

// validate refuses a member that cannot be a rank beside those before it.
func (d *Device) validate(rank int, m gpu.Device) error {
	if m == nil {
		return fmt.Errorf("group: rank %d is no device", rank)
	}
	// Two ranks on one device would write to the same streams, and neither would be in order.
	for earlier, other := range d.members[:rank] {
		if same(m, other) {
			return fmt.Errorf("group: rank %d is the same device as rank %d", rank, earlier)
		}
	}
	info, first := m.Info(), d.members[0].Info()
	switch {
	// Its ranks would be named by two numbers, and its shares be cut twice.
	case info.Ranks > 1:
		return fmt.Errorf("group: rank %d (%s) is itself a group of %d", rank, info.Name, info.Ranks)
	// Tickets and streams of two backends keep different promises about what may block.
	case info.Backend != first.Backend:
		return fmt.Errorf("group: rank %d (%s) is of backend %s, rank 0 of %s", rank, info.Name,
			info.Backend, first.Backend)
	}
	return nil
}

// same reports whether two members are one device. Devices of hosts may be of types that
// Go cannot compare, on which == panics. Of such a type, a device given twice is not
// recognised.
func same(a, b gpu.Device) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// describe is the Info of a group. Where ranks differ, the slower way is named, since
// a group is as fast as its slowest rank.
func describe(members []gpu.Device) gpu.Info {
	info := members[0].Info()
	var names, links []string
	for _, m := range members {
		i := m.Info()
		names, links = appendNew(names, i.Name), appendNew(links, i.Link)
		if i.Copies == "loop" {
			info.Copies = i.Copies
		}
		if i.Local == "" {
			info.Local = ""
		}
		if i.Completion == "events" {
			info.Completion = i.Completion
		}
	}
	info.Ranks = len(members)
	info.Name = fmt.Sprintf("%d × %s", len(members), strings.Join(names, ", "))
	info.Link = strings.Join(links, ", ")
	return info
}

// appendNew appends a text that is not in the list yet.
func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// Info describes the group: the names of its devices, and how many there are.
func (d *Device) Info() gpu.Info { return d.info }

// Ranks is the number of devices.
func (d *Device) Ranks() int { return len(d.members) }

// Rank is one of the devices. Work that is queued on it directly has no order with that
// of the group but what its own tickets make.
func (d *Device) Rank(rank int) gpu.Device { return d.members[rank] }

// Memory is what every rank has: the least of their free and of their total memory.
// An engine that splits it gives each rank pages that fit.
func (d *Device) Memory() (gpu.Memory, error) {
	if err := d.ending(); err != nil {
		return gpu.Memory{}, err
	}
	var least gpu.Memory
	for r, m := range d.members {
		memory, err := m.Memory()
		if err != nil {
			return gpu.Memory{}, d.refused(r, err)
		}
		// There is no neutral element for the least, so the first rank begins.
		if r == 0 {
			least = memory
		}
		least = gpu.Memory{
			Free: min(least.Free, memory.Free), Total: min(least.Total, memory.Total),
			HostFree: min(least.HostFree, memory.HostFree),
		}
	}
	return least, nil
}

// Close closes all ranks, each of which waits for its own work.
func (d *Device) Close() error {
	closed := gpu.ErrClosed
	// A group that a rank has ended is closed like any other.
	if before := d.end.Swap(&closed); before != nil && errors.Is(*before, gpu.ErrClosed) {
		return nil
	}
	// At once: each rank waits for its own work, and frees its own memory.
	errs := d.each(func(_ int, m gpu.Device) error { return m.Close() })
	for r := range errs {
		if errs[r] != nil {
			errs[r] = d.named(r, errs[r])
		}
	}
	return errors.Join(errs...)
}

// ending is why the group cannot be used any more, nil while it can.
func (d *Device) ending() error {
	// No lock is taken, because every call asks this first, also one of a kernel that runs within a
	// Submit.
	if e := d.end.Load(); e != nil {
		return *e
	}
	return nil
}

// terminal tells whether a member will answer nothing but this error.
func terminal(err error) bool {
	return errors.Is(err, gpu.ErrDeviceLost) || errors.Is(err, gpu.ErrClosed)
}

// refused is the error of a call that a rank has not carried out, and that has changed
// nothing on the others. A rank that is lost ends the group.
func (d *Device) refused(rank int, err error) error {
	if terminal(err) {
		return d.fail(rank, err)
	}
	return d.named(rank, err)
}

// named is an error of a rank.
func (d *Device) named(rank int, err error) error {
	return fmt.Errorf("group: rank %d of %d (%s): %w", rank, len(d.members),
		d.members[rank].Info().Name, err)
}

// fail ends the group because of a rank, unless it has ended before. The result is why
// it has ended.
func (d *Device) fail(rank int, cause error) error {
	if terminal(cause) {
		d.dead[rank].Store(true)
	}
	err := d.named(rank, cause)
	if !errors.Is(cause, gpu.ErrDeviceLost) {
		// To its users a group that cannot go on is a lost device, whatever the rank has said.
		err = fmt.Errorf("%w: %w", gpu.ErrDeviceLost, err)
	}
	// The first failure stays the reason: what other ranks say afterwards follows from it, and
	// a Close that has come before is one as well.
	d.end.CompareAndSwap(nil, &err)
	return d.ending()
}

// each calls all ranks at once, for what takes as long as memory takes: pinning host
// memory is limited by each rank's own part of it. The result has an error by rank.
func (d *Device) each(do func(rank int, m gpu.Device) error) []error {
	errs := make([]error, len(d.members))
	var all sync.WaitGroup
	for r, m := range d.members {
		all.Go(func() { errs[r] = do(r, m) })
	}
	all.Wait()
	return errs
}

// first is the error of the lowest rank that has one; a lost rank goes first and ends the
// group.
func (d *Device) first(errs []error) error {
	if r := slices.IndexFunc(errs, terminal); r >= 0 {
		return d.fail(r, errs[r])
	}
	if r := slices.IndexFunc(errs, func(err error) bool { return err != nil }); r >= 0 {
		return d.named(r, errs[r])
	}
	return nil
}

// drain waits until tickets of ranks have passed, whatever context the caller has: it
// runs when ranks have taken what the group has to take back. Zero tickets have passed.
func (d *Device) drain(on []gpu.Stream, seqs []uint64) error {
	var problems []error
	for r, m := range d.members {
		// A rank that is dead moves no byte any more, and would answer with an error.
		if seqs[r] == 0 || d.dead[r].Load() {
			continue
		}
		if err := m.Sync(context.Background(), gpu.Ticket{Stream: on[r], Seq: seqs[r]}); err != nil {
			problems = append(problems, d.fail(r, err))
		}
	}
	return errors.Join(problems...)
}
