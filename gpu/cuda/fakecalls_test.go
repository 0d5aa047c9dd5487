//go:build linux && (amd64 || arm64)

package cuda

import (
	"cmp"
	"maps"
	"slices"
	"syscall"
	"unsafe"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

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
		return on(fnDeviceGetCount, func(*fake) result { put(out, int32(2)); return success })
	})
	set(fnDeviceGet, func(out, ordinal uintptr) uintptr {
		return on(fnDeviceGet, func(*fake) result { put(out, int32(ordinal)+7); return success })
	})
	set(fnDeviceGetName, func(out, n, device uintptr) uintptr {
		return on(fnDeviceGetName, func(k *fake) result {
			k.expect(device == 7 || device == 8, "the device's handle is not its ordinal")
			copy(unsafe.Slice((*byte)(pointer(out)), n), "Fake 1000\x00")
			return success
		})
	})
	set(fnDeviceGetUUID, func(out, device uintptr) uintptr {
		return on(fnDeviceGetUUID, func(k *fake) result {
			copy(unsafe.Slice((*byte)(pointer(out)), 16), string(rune('a'+device-7))+"bcdefghijklmnop")
			return success
		})
	})
	set(fnDeviceGetAttribute, func(out, which, device uintptr) uintptr {
		return on(fnDeviceGetAttribute, func(k *fake) result {
			v, known := map[uintptr]int32{16: 20, 102: 1, 103: 1, 134: 0, 122: 1}[which]
			if which == 103 && k.private {
				v = 0
			}
			k.expect(known, "an attribute that the package does not use")
			put(out, v)
			return success
		})
	})
	set(fnMemGetInfo, func(free, total uintptr) uintptr {
		return on(fnMemGetInfo, func(k *fake) result {
			put(free, uint64(k.budget-k.used))
			put(total, uint64(k.budget))
			return success
		})
	})
}

func setContexts(set func(fn, any)) {
	set(fnPrimaryCtxRetain, func(out, device uintptr) uintptr {
		return on(fnPrimaryCtxRetain, func(k *fake) result {
			k.retained++
			put(out, uintptr(fakeContext)+device-7)
			return success
		})
	})
	set(fnPrimaryCtxRelease, func(device uintptr) uintptr {
		return on(fnPrimaryCtxRelease, func(k *fake) result { k.retained--; return success })
	})
	set(fnCtxPushCurrent, func(ctx uintptr) uintptr {
		return on(fnCtxPushCurrent, func(k *fake) result {
			k.expect(isContext(ctx), "context")
			t := k.thread()
			t.contexts = append(t.contexts, ctx)
			return success
		})
	})
	set(fnCtxPopCurrent, func(out uintptr) uintptr {
		return on(fnCtxPopCurrent, func(k *fake) result {
			t := k.thread()
			if len(t.contexts) == 0 {
				k.expect(false, "a context popped that was not pushed")
				return invalidContext
			}
			put(out, t.contexts[len(t.contexts)-1])
			t.contexts = t.contexts[:len(t.contexts)-1]
			return success
		})
	})
	set(fnExchangeCaptureMode, func(mode uintptr) uintptr {
		return on(fnExchangeCaptureMode, func(k *fake) result {
			t := k.thread()
			was := t.mode
			t.mode = *(*int32)(pointer(mode))
			put(mode, was)
			return success
		})
	})
}

// property is the driver's CUmemAllocationProp, read by offsets.
func (k *fake) property(at uintptr) (shared bool) {
	b := unsafe.Slice((*byte)(pointer(at)), 32)
	k.expect(b[0] == 1, "allocation type: pinned")
	k.expect(b[4] <= 1, "handle types: none or a file descriptor")
	k.expect(b[8] == 1 && int32(b[12]) == k.ordinal(), "location: the device of the current context")
	for _, v := range b[16:] {
		k.expect(v == 0, "the rest of the property is 0")
	}
	return b[4] == 1
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
			at := uintptr(unsafe.Pointer(&b[0])) + deviceShift
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
	set(fnPointerGetAttribute, func(out, which, at uintptr) uintptr {
		return on(fnPointerGetAttribute, func(k *fake) result {
			k.expect(which == 2 || which == 9, "an attribute of a pointer that the package does not use")
			for base, b := range k.allocated {
				if at >= base && at < base+uintptr(len(b)) {
					put(out, map[uintptr]int32{2: 2, 9: 0}[which])
					return success
				}
			}
			return invalidValue
		})
	})
	set(fnMemExport, func(out, h, kind, flags uintptr) uintptr {
		return on(fnMemExport, func(k *fake) result { return notSupported })
	})
	set(fnMemImport, func(out, fd, kind uintptr) uintptr {
		return on(fnMemImport, func(k *fake) result { return notSupported })
	})
}

func setChunks(set func(fn, any)) {
	set(fnMemCreate, func(out, size, prop, flags uintptr) uintptr {
		return on(fnMemCreate, func(k *fake) result {
			shared := k.property(prop)
			if k.used+int64(size) > k.budget {
				return outOfMemory
			}
			k.used += int64(size)
			h := k.handle()
			k.chunks[h] = &fakeChunk{bytes: int64(size), shared: shared}
			put(out, h)
			return success
		})
	})
	set(fnMemRelease, func(h uintptr) uintptr {
		return on(fnMemRelease, func(k *fake) result {
			c := k.chunks[uint64(h)]
			if c == nil {
				k.expect(false, "a chunk released that does not exist")
				return invalidValue
			}
			for _, m := range k.mapped {
				k.expect(m.handle != uint64(h), "a chunk released while it is mapped")
			}
			k.used -= c.bytes
			delete(k.chunks, uint64(h))
			return success
		})
	})
	set(fnMemMap, func(at, size, offset, h, flags uintptr) uintptr {
		return on(fnMemMap, func(k *fake) result {
			c := k.chunks[uint64(h)]
			k.expect(c != nil && c.bytes == int64(size) && offset == 0, "a chunk mapped in part")
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
			k.expect(count == 1 && d[0] == 1 && d[1] == k.ordinal() && d[2] == 3,
				"access: the device of the current context, read and write")
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
		k := current.Load()
		k.mu.Lock()
		pinning := k.pinning
		if pinning != nil {
			k.waits++
		}
		k.mu.Unlock()
		if pinning != nil {
			<-pinning
		}
		return on(fnMemHostRegister, func(k *fake) result {
			k.expect(flags == 3, "portable and mapped")
			for base, size := range k.pinned {
				if at < base+size && base < at+n {
					if k.hostAllocated[base] != nil {
						return invalidValue // as driver 580 answers
					}
					return hostRegistered
				}
			}
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
		return on(fnMemHostGetDevicePointer, func(k *fake) result {
			for base, size := range k.pinned {
				if at >= base && at < base+size {
					put(out, at+hostShift)
					return success
				}
			}
			return invalidValue
		})
	})
}

func setStreams(set func(fn, any)) {
	set(fnStreamCreate, func(out, flags, priority uintptr) uintptr {
		return on(fnStreamCreate, func(k *fake) result {
			k.expect(flags == 1, "a stream that does not block with the default one")
			h := uintptr(k.handle())
			k.streams[h] = &fakeStream{context: k.context()}
			put(out, h)
			return success
		})
	})
	set(fnStreamDestroy, func(s uintptr) uintptr {
		return on(fnStreamDestroy, func(k *fake) result {
			st := k.streams[s]
			if st == nil {
				k.expect(false, "a stream destroyed that does not exist")
				return invalidHandle
			}
			for i := range st.queue { // a driver runs the rest; only events may be left
				k.expect(st.queue[i].kind == opRecord || st.queue[i].kind == opWait,
					"a stream destroyed that has work")
			}
			for range st.queue {
				k.run(&st.queue[0])
				st.queue = st.queue[1:]
			}
			delete(k.streams, s)
			return success
		})
	})
	set(fnStreamQuery, func(s uintptr) uintptr {
		return on(fnStreamQuery, func(k *fake) result {
			if len(k.streams[s].queue) > 0 {
				return notReady
			}
			return success
		})
	})
	set(fnStreamSynchronize, func(s uintptr) uintptr { return k0().wait(fnStreamSynchronize, s) })
	set(fnStreamGetCtx, func(s, out uintptr) uintptr {
		return on(fnStreamGetCtx, func(k *fake) result {
			if k.streams[s] == nil {
				return invalidHandle
			}
			put(out, k.streams[s].context)
			return success
		})
	})
	set(fnStreamIsCapturing, func(s, out uintptr) uintptr {
		return on(fnStreamIsCapturing, func(k *fake) result {
			put(out, int32(0))
			if c := k.streams[s].capturing; c != nil {
				put(out, int32(1))
				if c.broken {
					put(out, int32(2))
				}
			}
			return success
		})
	})
}

func k0() *fake { return current.Load() }

// wait is cuStreamSynchronize or cuEventSynchronize: it runs the device until
// the stream is empty or the event has passed.
func (k *fake) wait(f fn, h uintptr) uintptr {
	for {
		k.mu.Lock()
		held := k.held
		if held != nil {
			k.waits++
		}
		k.mu.Unlock()
		if held == nil {
			break
		}
		<-held
	}
	return on(f, func(k *fake) result {
		over := func() bool { return len(k.streams[h].queue) == 0 }
		if f == fnEventSynchronize {
			e := k.events[h]
			if e.captured != nil {
				e.captured.broken = true
				return capturedEvent
			}
			over = func() bool { return e.passed >= e.recorded }
		} else if k.streams[h] == nil {
			k.expect(false, "a wait for a stream that does not exist")
			return invalidHandle
		} else if k.streams[h].capturing != nil {
			return firstCapture
		}
		k.expect(k.finish(over), "a wait that never ends")
		return k.lost
	})
}

func setCompletion(set func(fn, any)) {
	set(fnStreamWaitEvent, func(s, e, flags uintptr) uintptr {
		return on(fnStreamWaitEvent, func(k *fake) result {
			if k.events[e] == nil {
				return invalidHandle
			}
			return k.queue(s, fakeOp{kind: opWait, event: k.events[e]})
		})
	})
	set(fnStreamWriteValue64, func(s, at, v, flags uintptr) uintptr {
		return on(fnStreamWriteValue64, func(k *fake) result {
			if _, ok := k.memory(at, 8); !ok {
				return invalidValue
			}
			return k.queue(s, fakeOp{kind: opWrite, dst: at, value: uint64(v)})
		})
	})
	set(fnEventCreate, func(out, flags uintptr) uintptr {
		return on(fnEventCreate, func(k *fake) result {
			k.expect(flags == 0 || flags == 3 || flags == 6,
				"an event with timing, or one without that blocks who synchronizes, or goes to other processes")
			e := uintptr(k.handle())
			k.events[e] = &fakeEvent{timed: flags == 0}
			put(out, e)
			return success
		})
	})
	set(fnEventRecord, func(e, s uintptr) uintptr {
		return on(fnEventRecord,
			func(k *fake) result { return k.queue(s, fakeOp{kind: opRecord, event: k.events[e]}) })
	})
	set(fnEventQuery, func(h uintptr) uintptr {
		return on(fnEventQuery, func(k *fake) result {
			e := k.events[h]
			switch {
			case e == nil:
				return invalidHandle
			case e.captured != nil:
				e.captured.broken = true
				return capturedEvent
			case e.passed < e.recorded:
				return notReady
			}
			return success
		})
	})
	set(fnEventSynchronize, func(e uintptr) uintptr { return k0().wait(fnEventSynchronize, e) })
	set(fnEventDestroy, func(e uintptr) uintptr {
		return on(fnEventDestroy, func(k *fake) result { delete(k.events, e); return success })
	})
	set(fnIpcGetEventHandle, func(out, e uintptr) uintptr {
		return on(fnIpcGetEventHandle, func(k *fake) result { return notSupported })
	})
	d := fnIpcOpenEventHandle
	set(d, func(out uintptr) uintptr { return on(d, func(k *fake) result { return notSupported }) })
}

func setCopies(set func(fn, any)) {
	set(fnMemsetD8Async, func(at, v, n, s uintptr) uintptr {
		return on(fnMemsetD8Async, func(k *fake) result {
			_, ok := k.memory(at, n)
			k.expect(ok, "memory filled that is not accessible")
			return k.queue(s, fakeOp{kind: opFill, dst: at, n: n, value: uint64(v)})
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
				r = k.queue(s, fakeOp{kind: opCopy, dst: dst, src: src, n: n})
			}
			return r
		})
	})
	set(fnMemcpyBatchAsync, func(dsts, srcs, sizes, count, attrs, attrIdx, nAttrs, failIdx,
		s uintptr) uintptr {
		return on(fnMemcpyBatchAsync, func(k *fake) result {
			a := unsafe.Slice((*uint32)(pointer(attrs)), 6)
			k.expect(nAttrs == 1 && a[0] == 1 && a[5] == 0 && *(*uint64)(pointer(attrIdx)) == 0,
				"one attribute: stream order")
			if k.streams[s] != nil && k.streams[s].capturing != nil {
				k.streams[s].capturing.broken = true
				return firstCapture
			}
			d, f, n := words(dsts, count), words(srcs, count), words(sizes, count)
			for i := range d {
				way, r := k.way(uintptr(d[i]), uintptr(f[i]), uintptr(n[i]))
				if r != success || k.failCopy[way] > 0 && i >= k.spare[way] {
					put(failIdx, uint64(i))
					return invalidValue // in the middle: those before it are queued
				}
				if r := k.queue(s, fakeOp{kind: opCopy, dst: uintptr(d[i]), src: uintptr(f[i]),
					n: uintptr(n[i])}); r != success {
					return r
				}
			}
			return success
		})
	})
}
