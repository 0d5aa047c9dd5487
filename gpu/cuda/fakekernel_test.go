//go:build linux && (amd64 || arm64)

package cuda

import (
	"regexp"
	"strconv"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// kernelEntry is the head of a function of a module, with the bytes of its parameter.
var kernelEntry = regexp.MustCompile(
	`\.visible \.entry (\w+)\(\.param \.align 8 \.b8 list\[(\d+)\]\)`)

// text reads what C ends with a zero byte.
func text(at uintptr) string {
	n := uintptr(0)
	for *(*byte)(pointer(at + n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(pointer(at)), n))
}

// setKernels makes the functions of modules and launches. A launch does what kernel.ptx says,
// one piece after the other from the last on. Whether the kernel itself does so is for the test
// of its text, and for tests on a device.
func setKernels(set func(fn, any)) {
	names := map[string]uintptr{}
	set(fnModuleLoadData, func(out, image uintptr) uintptr {
		return on(fnModuleLoadData, func(k *fake) result {
			for _, m := range kernelEntry.FindAllStringSubmatch(text(image), -1) {
				h := uintptr(k.handle())
				names[m[1]] = h
				k.entries[h], _ = strconv.Atoi(m[2])
			}
			put(out, uintptr(k.handle()))
			return success
		})
	})
	set(fnModuleUnload, func(module uintptr) uintptr {
		return on(fnModuleUnload, func(k *fake) result {
			for _, st := range k.streams {
				for i := range st.queue {
					k.expect(!st.queue[i].launched, "a module unloaded before its launches are over")
				}
			}
			return success
		})
	})
	set(fnModuleGetFunction, func(out, module, name uintptr) uintptr {
		return on(fnModuleGetFunction, func(k *fake) result {
			h, known := names[text(name)]
			if !known {
				return invalidHandle
			}
			put(out, h)
			return success
		})
	})
	set(fnLaunchKernel, func(f, gx, gy, gz, bx, by, bz, shared, s, params, extra uintptr) uintptr {
		return on(fnLaunchKernel, func(k *fake) result {
			k.expect(gx > 0 && gy == 1 && gz == 1 && bx > 0 && bx%32 == 0 && bx <= 1024 && by == 1 &&
				bz == 1, "a grid of whole warps")
			k.expect(shared == 0 && extra == 0, "neither shared memory nor parameters in a buffer")
			return k.launch(f, s, *(*uintptr)(pointer(params)))
		})
	})
}

// launch queues the copies of a list, or none of them.
func (k *fake) launch(f, s, list uintptr) result {
	bytes, known := k.entries[f]
	units, shift := *(*uint32)(pointer(list)), *(*uint32)(pointer(list + 4))
	n := uintptr(units >> shift)
	if !known || n == 0 || units != uint32(n)<<shift || int(8+24*n) > bytes {
		k.expect(false, "a list that does not fit into the parameter")
		return invalidValue
	}
	pieces := words(list+8, 3*n)
	for i := range n {
		p := pieces[3*i:]
		way, r := k.way(uintptr(p[0]), uintptr(p[1]), uintptr(p[2]))
		if r != success || k.failCopy[way] > 0 && int(i) >= k.spare[way] {
			return invalidValue
		}
	}
	for i := int(n) - 1; i >= 0; i-- {
		p := pieces[3*i:]
		if r := k.queue(s, fakeOp{kind: opCopy, dst: uintptr(p[0]), src: uintptr(p[1]), n: uintptr(p[2]),
			launched: true}); r != success {
			return r
		}
	}
	return success
}

func words(at, n uintptr) []uint64 { return unsafe.Slice((*uint64)(pointer(at)), n) }

// way tells the direction of a copy. Memory that neither the host nor the device
// has is refused. An address of the host's is taken, as a driver does that is
// about to end the context.
func (k *fake) way(dst, src, n uintptr) (gpu.Direction, result) {
	for _, at := range []uintptr{dst, src} {
		if _, ok := k.memory(at, n); !ok {
			if _, host := k.memory(at+hostShift, n); !host {
				return 0, invalidValue
			}
		}
	}
	onDevice := func(at uintptr) bool { return at >= deviceShift && at < hostShift }
	switch {
	case onDevice(dst) && onDevice(src):
		return gpu.Local, success
	case onDevice(dst):
		return gpu.Onboard, success
	default:
		return gpu.Offload, success
	}
}
