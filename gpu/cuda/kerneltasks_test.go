//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
)

// skews are how many bytes destinations and sources lie behind an aligned address.
var skews = [][2]uint64{{0, 0}, {8, 0}, {0, 8}, {3, 3}, {5, 14}}

// newTask places pieces, adjoining or with space between. Each has one of the skews.
func newTask(rng *rand.Rand, name string, sizes []uint64, skews ...[2]uint64) *ptxTask {
	task := &ptxTask{name: name, memory: ptxMemory{base: globalBase}}
	m, l := &task.memory, &task.pieces
	place := func(size, skew uint64, mark ptxMark) (address uint64) {
		gap := -len(m.marks)&15 + 16*rng.IntN(2) + int(skew)
		m.marks = append(m.marks, make([]ptxMark, gap)...)
		m.marks = append(m.marks, slices.Repeat([]ptxMark{mark}, int(size))...)
		return globalBase + uint64(len(m.marks)) - size
	}
	for _, size := range sizes {
		skew := skews[rng.IntN(len(skews))]
		l.dst, l.src = append(l.dst, place(size, skew[0], ptxDestination)),
			append(l.src, place(size, skew[1], ptxSource))
		l.size, l.way = append(l.size, size), append(l.way, gpu.Local)
	}
	m.bytes = make([]byte, len(m.marks))
	rand.NewChaCha8([32]byte{}).Read(m.bytes)
	task.want = slices.Clone(m.bytes)
	for i, size := range sizes {
		copy(task.want[l.dst[i]-globalBase:][:size], m.bytes[l.src[i]-globalBase:])
		if (l.dst[i]|l.src[i]|size)%16 == 0 {
			size /= 16
		}
		task.stores += int(size)
	}
	return task
}

// kernelTasks are what the kernel must be able to do.
func kernelTasks(rng *rand.Rand) (tasks []*ptxTask) {
	add := func(name string, sizes []uint64, skews ...[2]uint64) {
		tasks = append(tasks, newTask(rng, name, sizes, skews...))
	}
	random := func(n int, most uint64) (sizes []uint64) {
		for range n {
			sizes = append(sizes, (1+rng.Uint64N(most/16))*16-rng.Uint64N(2)*rng.Uint64N(16))
		}
		return sizes
	}
	rounds, alone := 6, skews
	if testing.Short() {
		rounds, alone = 2, skews[:2]
	} else {
		add("a long list", random(longPieces, 512), skews...)
	}
	sizes := []uint64{1, 15, 16, 17, 512, 4080, 4096, 4097, 4112, 8192, 12288 + 16, 40000}
	for _, size := range sizes {
		for _, skew := range alone {
			add(fmt.Sprintf("%d bytes from %d to %d", size, skew[1], skew[0]), []uint64{size}, skew)
		}
	}
	add("all sizes", slices.Repeat(sizes, rounds/2), skews...)
	var vectors []uint64
	for n := range uint64(257) {
		vectors = append(vectors, 16*(n+1))
	}
	add("each number of vectors", vectors, skews[0])
	add("a short list", random(shortPieces, 300), skews...)
	add("more than a short list", random(shortPieces+1, 300), skews...)
	for i := range rounds {
		add(fmt.Sprint("random pieces ", i), random(1+rng.IntN(30), 9000), skews...)
	}
	return tasks
}

// ptxLaunch is a launch to be made.
type ptxLaunch struct {
	entry           *ptxEntry
	blocks, threads uint64
	list            []byte // the parameter
}

// with is a launch of the same list that kernel.launch would not make.
func (l ptxLaunch) with(shift uint32, blocks, threads uint64) ptxLaunch {
	l.list, l.blocks, l.threads = slices.Clone(l.list), blocks, threads
	binary.LittleEndian.PutUint32(l.list, uint32((len(l.list)-kernelListHead)/pieceSize)<<shift)
	binary.LittleEndian.PutUint32(l.list[4:], shift)
	return l
}

// check makes a launch: it moves all bytes of the pieces, none twice, and no others.
func (task *ptxTask) check(t *testing.T, l ptxLaunch) {
	require.LessOrEqual(t, len(l.list), l.entry.paramBytes)
	g := &ptxGrid{t: t, entry: l.entry, slots: slices.Clone(l.entry.start),
		memory: [2]ptxMemory{{paramBase, l.list, slices.Repeat([]ptxMark{ptxSource}, len(l.list))},
			{globalBase, slices.Clone(task.memory.bytes), slices.Clone(task.memory.marks)}}}
	g.run(l.blocks, l.threads)
	for i, want := range task.want {
		if have := g.memory[1].bytes[i]; have != want {
			t.Fatalf("%s: %d blocks of %d threads, shift %d: the byte at %#x is %#x and should be %#x",
				l.entry.name, l.blocks, l.threads, l.list[4], globalBase+i, have, want)
		}
	}
	require.Equal(t, task.stores, g.accesses[ptxDestination], "stores, as vectors where possible")
	units, shift := binary.LittleEndian.Uint32(l.list), l.list[4]
	if uint64(units) <= l.blocks*l.threads/32 {
		segments := slices.Max(task.pieces.size) / segmentBytes
		require.LessOrEqual(t, g.most, int(segments>>shift+1)*segmentBytes/32,
			"stores of a thread that has one part")
	}
}

func TestKernelText(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	device, _ := openFake(t)
	k, entries := &device.copies.kernel, parseKernels(t, kernelText())
	var l ptxLaunch
	device.driver[fnLaunchKernel] = purego.NewCallback(
		func(f, gx, gy, gz, bx, by, bz, shared, s, params, extra uintptr) uintptr {
			list := *(*uintptr)(pointer(params))
			units, shift := *(*uint32)(pointer(list)), *(*uint32)(pointer(list + 4))
			b := unsafe.Slice((*byte)(pointer(list)), kernelListHead+units>>shift*pieceSize)
			l = ptxLaunch{
				map[uintptr]*ptxEntry{k.short: entries[0], k.long: entries[1]}[f], uint64(gx), uint64(bx),
				slices.Clone(b),
			}
			return 0
		})
	for _, task := range kernelTasks(rng) {
		t.Run(task.name, func(t *testing.T) {
			for _, k.processors = range []int{1, 132} {
				for i := range task.pieces.dst {
					k.add(&task.pieces, i)
				}
				require.Equal(t, success, k.launch(&session{d: device}, &stream{}))
				task.check(t, l)
			}
			few := testing.Short() || len(task.pieces.dst) == longPieces
			for i := range 10 {
				blocks, threads := uint64(1+i%2*rng.IntN(9)), uint64(32)<<rng.IntN(4)
				if !few || rng.IntN(7) == 0 {
					task.check(t, l.with(uint32(i/2), blocks, threads))
				}
			}
		})
	}
}

// The driver's compiler takes no characters but those of ASCII, and parameters up to a limit.
func TestKernelTextIsPlain(t *testing.T) {
	text := kernelText()
	assert.True(t, strings.HasPrefix(text, ".version 8.1\n"))
	assert.Regexp(t, `^[\t\n -~]*$`, text)
	short, long := kernelListHead+shortPieces*pieceSize, kernelListHead+longPieces*pieceSize
	e := parseKernels(t, text)
	require.Len(t, e, 2)
	assert.Equal(t, []any{shortEntry, short, longEntry, long},
		[]any{e[0].name, e[0].paramBytes, e[1].name, e[1].paramBytes})
	assert.LessOrEqual(t, short, 4096)
	assert.LessOrEqual(t, long, 32764)
	assert.EqualValues(t, unsafe.Sizeof(kernelList{}), long)
}
