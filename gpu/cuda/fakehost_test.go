//go:build linux && (amd64 || arm64)

package cuda

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// hostCallbacks are the functions of a fake driver that only hosts call.
var hostCallbacks = sync.OnceValue(func() *map[string]uintptr {
	locked := func(do func(k *fake) result) uintptr {
		k := current.Load()
		k.mu.Lock()
		defer k.mu.Unlock()
		return uintptr(do(k))
	}
	graphs := map[uintptr]*fakeCapture{}
	allocate := func(n uintptr, keep func(k *fake, at uintptr, b []byte)) uintptr {
		return locked(func(k *fake) result {
			b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE,
				syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				return outOfMemory
			}
			keep(k, uintptr(unsafe.Pointer(&b[0])), b)
			return success
		})
	}
	return &map[string]uintptr{
		"cuStreamBeginCapture_v2": purego.NewCallback(func(s, mode uintptr) uintptr {
			return locked(func(k *fake) result {
				k.expect(mode == 0, "captures of another mode than global are not modelled")
				c := &fakeCapture{}
				k.streams[s].capturing, k.captures[c] = c, true
				return success
			})
		}),
		"cuStreamEndCapture": purego.NewCallback(func(s, out uintptr) uintptr {
			return locked(func(k *fake) result { return k.endCapture(s, out, graphs) })
		}),
		"cuGraphGetNodes": purego.NewCallback(func(g, nodes, n uintptr) uintptr {
			return locked(func(k *fake) result { put(n, uint64(graphs[g].nodes)); return success })
		}),
		"cuGraphDestroy": purego.NewCallback(func(g uintptr) uintptr {
			return locked(func(k *fake) result { delete(graphs, g); return success })
		}),
		"cuCtxGetCurrent": purego.NewCallback(func(out uintptr) uintptr {
			return locked(func(k *fake) result {
				put(out, uintptr(0))
				if c := k.thread().contexts; len(c) > 0 {
					put(out, c[len(c)-1])
				}
				return success
			})
		}),
		"cuMemAlloc_v2": purego.NewCallback(func(out, n uintptr) uintptr {
			return allocate(n, func(k *fake, at uintptr, b []byte) {
				k.allocated[at+deviceShift] = b
				put(out, at+deviceShift)
			})
		}),
		"cuMemHostAlloc": purego.NewCallback(func(out, n, flags uintptr) uintptr {
			return allocate(n, func(k *fake, at uintptr, b []byte) {
				k.pinned[at], k.hostAllocated[at] = n, b
				put(out, at)
			})
		}),
		"cuMemFreeHost": purego.NewCallback(func(at uintptr) uintptr {
			return locked(func(k *fake) result {
				k.expect(k.hostAllocated[at] != nil, "host memory freed that was not allocated")
				_ = syscall.Munmap(k.hostAllocated[at])
				delete(k.hostAllocated, at)
				delete(k.pinned, at)
				return success
			})
		}),
		"cuMemFree_v2": purego.NewCallback(func(at uintptr) uintptr {
			return locked(func(k *fake) result {
				k.expect(k.allocated[at] != nil, "memory freed that was not allocated")
				_ = syscall.Munmap(k.allocated[at])
				delete(k.allocated, at)
				return success
			})
		}),
	}
})

// endCapture fails when the capture was broken, or a stream has joined it whose work
// did not come back to it.
func (k *fake) endCapture(s, out uintptr, graphs map[uintptr]*fakeCapture) result {
	const invalidated, unjoined = 901, 904
	c := k.streams[s].capturing
	delete(k.captures, c)
	working := 0
	for h, st := range k.streams {
		if st.capturing == c {
			if st.worked && h != s {
				working++
			}
			st.capturing, st.worked = nil, false
		}
	}
	switch {
	case c.broken:
		return invalidated
	case working > 0:
		return unjoined
	}
	g := uintptr(k.handle())
	graphs[g] = c
	put(out, g)
	return success
}
