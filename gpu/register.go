package gpu

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Spec says which device to open. Fields that a backend has no use for are
// passed over.
type Spec struct {
	Ordinal     int    // which of the machine's devices, from 0
	UUID        string // of the device; if set, Ordinal has no effect
	MemoryBytes int64  // device memory to use; 0: what the backend takes by itself
	Profile     string // simulated: name of the link profile
	Seed        int64  // simulated: of the schedule
	// Trace is told of each batch of copies after it has ended; nil: nothing is measured.
	// It must not call the device.
	Trace func(Transfer)
}

// Transfer is a batch of copies that has ended.
type Transfer struct {
	Stream string // its name
	Label  string // of the batch
	Copies int
	Bytes  int64
	// Start and End are by the device's clock: the time between them is that for which the
	// copies were under way, without what they waited for.
	Start, End time.Duration
	// Submit is when the batch was submitted, by the same clock; 0 on gpu/cuda, whose clock
	// does not know.
	Submit time.Duration
}

// Opener opens a device of one backend.
type Opener func(Spec) (Device, error)

var backends struct {
	sync.Mutex
	names   []string
	openers []Opener
}

// Register makes a backend known to Open. Backends call it from an init function, so a program has
// those that it imports; a second registration of a name panics.
func Register(name string, open Opener) {
	backends.Lock()
	defer backends.Unlock()
	if slices.Contains(backends.names, name) {
		panic(fmt.Sprintf("gpu: backend %s registered twice", name))
	}
	backends.names = append(backends.names, name)
	backends.openers = append(backends.openers, open)
}

// Open opens a device of a backend that the program has imported. If it has not, the error lists
// those that it has. Opening may take as long as the backend's driver does: package cuda compiles a
// kernel. The caller closes the device, after the engines that use it.
func Open(name string, spec Spec) (Device, error) {
	backends.Lock()
	i := slices.Index(backends.names, name)
	if i < 0 {
		known := strings.Join(backends.names, ", ")
		backends.Unlock()
		return nil, fmt.Errorf("gpu: no backend %q is linked into this program (there are: %s)", name,
			known)
	}
	open := backends.openers[i]
	backends.Unlock()
	return open(spec)
}
