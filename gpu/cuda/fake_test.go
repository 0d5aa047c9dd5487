//go:build linux && (amd64 || arm64)

package cuda

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/kvactor/kvactor/gpu"
)

// fake is a driver in Go behind the C calling convention: its functions are
// called through the same table as the real ones. It does all work at once, but
// for tickets, which pass only when it is not held.
type fake struct {
	mu       sync.Mutex
	calls    map[fn]int
	fail     map[fn]result // by function: refuse from now on
	failCopy [gpu.Directions]int
	spare    [gpu.Directions]int // copies that succeed before failCopy
	budget   int64
	used     int64
	next     uint64
	handles  map[uint64]int64    // sizes of physical chunks
	reserved map[uintptr][]byte  // address space
	mapped   map[uintptr]mapping // by address
	pinned   map[uintptr]uintptr // registered host memory: address to length
	streams  map[uintptr]bool    // true: being captured
	foreign  uintptr             // a stream of another context
	events   map[uintptr]bool    // true: recorded
	held     chan struct{}       // not nil: nothing passes until it is closed
	writes   []func()            // counters to write then
	wrong    []string            // arguments that no driver would take
}

type mapping struct {
	bytes      int64
	handle     uint64
	accessible bool
}

const (
	fakeContext     = 0xC0
	fakeGranularity = 2 << 20
	invalidValue    = result(1)
)

var (
	current   atomic.Pointer[fake]
	callbacks = sync.OnceValue(makeCallbacks)
)

// newFake makes a driver and the table that leads to it. One at a time: C
// functions have no receiver.
func newFake(without ...fn) (*fake, *driver) {
	f := &fake{
		calls: map[fn]int{}, fail: map[fn]result{}, budget: 64 << 20, next: 0x1000,
		handles: map[uint64]int64{}, reserved: map[uintptr][]byte{}, mapped: map[uintptr]mapping{},
		pinned: map[uintptr]uintptr{}, streams: map[uintptr]bool{}, events: map[uintptr]bool{},
	}
	current.Store(f)
	table := *callbacks()
	for _, w := range without {
		table[w] = 0
	}
	return f, &table
}

// pointer turns an address that came through C into a pointer.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

func put[T any](at uintptr, v T) { *(*T)(pointer(at)) = v }

// on counts a call and refuses it when it is to fail.
func on(f fn, do func(*fake) result) uintptr {
	k := current.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[f]++
	if r, fails := k.fail[f]; fails {
		return uintptr(r)
	}
	return uintptr(do(k))
}

func (k *fake) expect(ok bool, what string) {
	if !ok {
		k.wrong = append(k.wrong, what)
	}
}

func (k *fake) handle() uint64 {
	k.next++
	return k.next
}

var errorNames = map[result][]byte{
	1: []byte("CUDA_ERROR_INVALID_VALUE\x00"), 2: []byte("CUDA_ERROR_OUT_OF_MEMORY\x00"),
	34: []byte("CUDA_ERROR_STUB_LIBRARY\x00"), 100: []byte("CUDA_ERROR_NO_DEVICE\x00"),
	700: []byte("CUDA_ERROR_ILLEGAL_ADDRESS\x00"), 801: []byte("CUDA_ERROR_NOT_SUPPORTED\x00"),
}

func makeCallbacks() *driver {
	var d driver
	set := func(f fn, g any) { d[f] = purego.NewCallback(g) }
	setStart(set)
	setMemory(set)
	setChunks(set)
	setHost(set)
	setStreams(set)
	setCompletion(set)
	setCopies(set)
	return &d
}

func setStart(set func(fn, any)) {
	ok := func(*fake) result { return success }
	set(fnInit, func(flags uintptr) uintptr { return on(fnInit, ok) })
	set(fnGetErrorName, func(r, out uintptr) uintptr {
		name, known := errorNames[result(r)]
		if !known {
			return uintptr(invalidValue)
		}
		put(out, &name[0])
		return 0
	})
	set(fnDeviceGetCount, func(out uintptr) uintptr {
		return on(fnDeviceGetCount, func(*fake) result { put(out, int32(1)); return success })
	})
	set(fnDeviceGet, func(out, ordinal uintptr) uintptr {
		return on(fnDeviceGet, func(*fake) result { put(out, int32(ordinal)+7); return success })
	})
	set(fnDeviceGetName, func(out, n, device uintptr) uintptr {
		return on(fnDeviceGetName, func(k *fake) result {
			k.expect(device == 7, "the device's handle is not its ordinal")
			copy(unsafe.Slice((*byte)(pointer(out)), n), "Fake 1000\x00")
			return success
		})
	})
	set(fnDeviceGetAttribute, func(out, which, device uintptr) uintptr {
		return on(fnDeviceGetAttribute, func(k *fake) result {
			v, known := map[uintptr]int32{102: 1, 134: 0, 122: 1}[which]
			k.expect(known, "an attribute that nobody needs")
			put(out, v)
			return success
		})
	})
	set(fnPrimaryCtxRetain, func(out, device uintptr) uintptr {
		return on(fnPrimaryCtxRetain, func(*fake) result { put(out, uintptr(fakeContext)); return success })
	})
	set(fnPrimaryCtxRelease, func(device uintptr) uintptr { return on(fnPrimaryCtxRelease, ok) })
	set(fnCtxSetCurrent, func(ctx uintptr) uintptr {
		return on(fnCtxSetCurrent, func(k *fake) result { k.expect(ctx == fakeContext, "context"); return success })
	})
	set(fnMemGetInfo, func(free, total uintptr) uintptr {
		return on(fnMemGetInfo, func(k *fake) result {
			put(free, uint64(k.budget-k.used))
			put(total, uint64(k.budget))
			return success
		})
	})
}

// property is the driver's CUmemAllocationProp, read by offsets.
func (k *fake) property(at uintptr) {
	b := unsafe.Slice((*byte)(pointer(at)), 32)
	k.expect(b[0] == 1, "allocation type: pinned")
	k.expect(b[8] == 1 && b[12] == 0, "location: device 0")
	for _, v := range b[16:] {
		k.expect(v == 0, "the rest of the property is 0")
	}
}

func setMemory(set func(fn, any)) {
	set(fnMemGetAllocationGranularity, func(out, prop, option uintptr) uintptr {
		return on(fnMemGetAllocationGranularity, func(k *fake) result {
			k.property(prop)
			put(out, uint64(fakeGranularity))
			return success
		})
	})
	set(fnMemAddressReserve, func(out, size, align, hint, flags uintptr) uintptr {
		return on(fnMemAddressReserve, func(k *fake) result {
			k.expect(size > 0 && size%fakeGranularity == 0, "reserved size")
			b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				return outOfMemory
			}
			at := uintptr(unsafe.Pointer(&b[0]))
			k.reserved[at] = b
			put(out, at)
			return success
		})
	})
	set(fnMemAddressFree, func(at, size uintptr) uintptr {
		return on(fnMemAddressFree, func(k *fake) result {
			b, known := k.reserved[at]
			k.expect(known && len(b) == int(size), "address space freed that was not reserved so")
			delete(k.reserved, at)
			_ = syscall.Munmap(b)
			return success
		})
	})
}

func setChunks(set func(fn, any)) {
	set(fnMemCreate, func(out, size, prop, flags uintptr) uintptr {
		return on(fnMemCreate, func(k *fake) result {
			k.property(prop)
			if k.used+int64(size) > k.budget {
				return outOfMemory
			}
			k.used += int64(size)
			h := k.handle()
			k.handles[h] = int64(size)
			put(out, h)
			return success
		})
	})
	set(fnMemRelease, func(h uintptr) uintptr {
		return on(fnMemRelease, func(k *fake) result {
			size, known := k.handles[uint64(h)]
			k.expect(known, "a chunk released that does not exist")
			for _, m := range k.mapped {
				k.expect(m.handle != uint64(h), "a chunk released while it is mapped")
			}
			k.used -= size
			delete(k.handles, uint64(h))
			return success
		})
	})
	set(fnMemMap, func(at, size, offset, h, flags uintptr) uintptr {
		return on(fnMemMap, func(k *fake) result {
			k.expect(k.handles[uint64(h)] == int64(size) && offset == 0, "a chunk mapped in part")
			k.mapped[at] = mapping{bytes: int64(size), handle: uint64(h)}
			return success
		})
	})
	set(fnMemUnmap, func(at, size uintptr) uintptr {
		return on(fnMemUnmap, func(k *fake) result {
			k.expect(k.mapped[at].bytes == int64(size), "memory unmapped that was not mapped so")
			delete(k.mapped, at)
			return k.protect(at, size, syscall.PROT_NONE)
		})
	})
	set(fnMemSetAccess, func(at, size, desc, count uintptr) uintptr {
		return on(fnMemSetAccess, func(k *fake) result {
			d := unsafe.Slice((*int32)(pointer(desc)), 3)
			k.expect(count == 1 && d[0] == 1 && d[1] == 0 && d[2] == 3, "access: device 0, read and write")
			m := k.mapped[at]
			m.accessible = true
			k.mapped[at] = m
			return k.protect(at, size, syscall.PROT_READ|syscall.PROT_WRITE)
		})
	})
}

func (k *fake) protect(at, size uintptr, mode int) result {
	for base, b := range k.reserved {
		if at >= base && at+size <= base+uintptr(len(b)) {
			if syscall.Mprotect(b[at-base:at-base+size], mode) != nil {
				return unknown
			}
			return success
		}
	}
	return invalidValue
}

func setHost(set func(fn, any)) {
	set(fnMemHostRegister, func(at, n, flags uintptr) uintptr {
		return on(fnMemHostRegister, func(k *fake) result {
			k.expect(flags == 3, "portable and mapped")
			k.pinned[at] = n
			return success
		})
	})
	set(fnMemHostUnregister, func(at uintptr) uintptr {
		return on(fnMemHostUnregister, func(k *fake) result {
			k.expect(k.pinned[at] != 0, "memory unregistered that was not registered")
			delete(k.pinned, at)
			return success
		})
	})
	set(fnMemHostGetDevicePointer, func(out, at, flags uintptr) uintptr {
		return on(fnMemHostGetDevicePointer, func(k *fake) result { put(out, at); return success })
	})
}

func setStreams(set func(fn, any)) {
	ok := func(*fake) result { return success }
	set(fnStreamCreate, func(out, flags, priority uintptr) uintptr {
		return on(fnStreamCreate, func(k *fake) result {
			k.expect(flags == 1, "a stream that does not block with the default one")
			h := uintptr(k.handle())
			k.streams[h] = false
			put(out, h)
			return success
		})
	})
	set(fnStreamDestroy, func(s uintptr) uintptr {
		return on(fnStreamDestroy, func(k *fake) result { delete(k.streams, s); return success })
	})
	set(fnStreamQuery, func(s uintptr) uintptr {
		return on(fnStreamQuery, func(k *fake) result {
			if k.held != nil {
				return notReady
			}
			return success
		})
	})
	set(fnStreamSynchronize, func(s uintptr) uintptr { return on(fnStreamSynchronize, ok) })
	set(fnStreamGetCtx, func(s, out uintptr) uintptr {
		return on(fnStreamGetCtx, func(k *fake) result {
			put(out, uintptr(fakeContext))
			if s == k.foreign {
				put(out, uintptr(1))
			}
			return success
		})
	})
	set(fnStreamIsCapturing, func(s, out uintptr) uintptr {
		return on(fnStreamIsCapturing, func(k *fake) result {
			put(out, int32(0))
			if k.streams[s] {
				put(out, int32(1))
			}
			return success
		})
	})
}

func setCompletion(set func(fn, any)) {
	ok := func(*fake) result { return success }
	set(fnStreamWaitEvent, func(s, e, flags uintptr) uintptr {
		return on(fnStreamWaitEvent, func(k *fake) result {
			k.expect(k.events[e], "a wait for an event that was never recorded")
			return success
		})
	})
	set(fnStreamWriteValue64, func(s, at, v, flags uintptr) uintptr {
		return on(fnStreamWriteValue64, func(k *fake) result {
			write := func() { atomic.StoreUint64((*uint64)(pointer(at)), uint64(v)) }
			if k.held != nil {
				k.writes = append(k.writes, write)
			} else {
				write()
			}
			return success
		})
	})
	set(fnEventCreate, func(out, flags uintptr) uintptr {
		return on(fnEventCreate, func(k *fake) result {
			k.expect(flags == 3, "an event without timing that blocks who synchronizes")
			e := uintptr(k.handle())
			k.events[e] = false
			put(out, e)
			return success
		})
	})
	set(fnEventRecord, func(e, s uintptr) uintptr {
		return on(fnEventRecord, func(k *fake) result { k.events[e] = true; return success })
	})
	set(fnEventQuery, func(e uintptr) uintptr {
		return on(fnEventQuery, func(k *fake) result {
			if k.held != nil {
				return notReady
			}
			return success
		})
	})
	set(fnEventSynchronize, func(e uintptr) uintptr {
		k := current.Load()
		k.mu.Lock()
		held := k.held
		k.mu.Unlock()
		if held != nil {
			<-held
		}
		return on(fnEventSynchronize, ok)
	})
	set(fnEventDestroy, func(e uintptr) uintptr {
		return on(fnEventDestroy, func(k *fake) result { delete(k.events, e); return success })
	})
}

// release lets everything pass.
func (k *fake) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.writes {
		w()
	}
	close(k.held)
	k.held, k.writes = nil, nil
}

func setCopies(set func(fn, any)) {
	set(fnMemsetD8Async, func(at, v, n, s uintptr) uintptr {
		return on(fnMemsetD8Async, func(k *fake) result {
			_, ok := k.tier(at, n)
			k.expect(ok, "memory filled that is not accessible")
			b := unsafe.Slice((*byte)(pointer(at)), n)
			for i := range b {
				b[i] = byte(v)
			}
			return success
		})
	})
	set(fnMemcpyAsync, func(dst, src, n, s uintptr) uintptr {
		return on(fnMemcpyAsync, func(k *fake) result {
			way, r := k.way(dst, src, n)
			switch {
			case r != success || k.failCopy[way] == 0:
			case k.spare[way] > 0:
				k.spare[way]--
			default:
				k.failCopy[way]--
				r = invalidValue
			}
			if r == success {
				move(dst, src, n)
			}
			return r
		})
	})
	set(fnMemcpyBatchAsync, func(dsts, srcs, sizes, count, attrs, attrIdx, nAttrs, failIdx, s uintptr) uintptr {
		return on(fnMemcpyBatchAsync, func(k *fake) result {
			a := unsafe.Slice((*uint32)(pointer(attrs)), 6)
			k.expect(nAttrs == 1 && a[0] == 1 && a[5] == 0 && *(*uint64)(pointer(attrIdx)) == 0, "one attribute: stream order")
			d, f, n := words(dsts, count), words(srcs, count), words(sizes, count)
			for i := range d {
				way, r := k.way(uintptr(d[i]), uintptr(f[i]), uintptr(n[i]))
				if r != success || k.failCopy[way] > 0 && i >= k.spare[way] {
					put(failIdx, uint64(i))
					return invalidValue // in the middle: those before it are queued
				}
				move(uintptr(d[i]), uintptr(f[i]), uintptr(n[i]))
			}
			return success
		})
	})
}

func words(at, n uintptr) []uint64 { return unsafe.Slice((*uint64)(pointer(at)), n) }

func move(dst, src, n uintptr) {
	copy(unsafe.Slice((*byte)(pointer(dst)), n), unsafe.Slice((*byte)(pointer(src)), n))
}

// way tells the direction of a copy; memory that the device does not reach is
// refused.
func (k *fake) way(dst, src, n uintptr) (gpu.Direction, result) {
	toDevice, ok1 := k.tier(dst, n)
	fromDevice, ok2 := k.tier(src, n)
	switch {
	case !ok1 || !ok2:
		return 0, invalidValue
	case toDevice && fromDevice:
		return gpu.Local, success
	case toDevice:
		return gpu.Onboard, success
	default:
		return gpu.Offload, success
	}
}

// tier tells whose memory a range is. It may cross chunks that adjoin, but no
// two registered pieces.
func (k *fake) tier(at, n uintptr) (device, ok bool) {
	for base, size := range k.pinned {
		if at >= base && at+n <= base+size {
			return false, true
		}
	}
	for n > 0 {
		moved := false
		for base, m := range k.mapped {
			if m.accessible && at >= base && at < base+uintptr(m.bytes) {
				step := min(n, base+uintptr(m.bytes)-at)
				at, n, moved = at+step, n-step, true
			}
		}
		if !moved {
			return true, false
		}
	}
	return true, true
}
