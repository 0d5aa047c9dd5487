package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/messages"
)

// sharedSpec has pages in both tiers that another process maps.
var sharedSpec = gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 8, HostPages: 8,
	MaxDevicePages: 64, Shared: true}

// Another process writes a page, this one copies it when the other has told, and the other
// reads what came back. Each line that the child writes is a step.
func TestAnotherProcess(t *testing.T) {
	r := newRig(t, host.Config{}, sharedSpec)
	e, err := r.Export(r.pool)
	require.NoError(t, err)
	shape, err := json.Marshal(e)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "KVACTOR_EXPORT="+string(shape))
	child.ExtraFiles = []*os.File{e.Device, e.Host}
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.NoError(t, e.Close())

	written, err := r.NewTicket(r.a, "child writes")
	require.NoError(t, err)
	done := r.offload(3, written)
	var step [1]byte
	_, err = io.ReadFull(out, step[:])
	require.NoError(t, err)
	require.NoError(t, r.Complete(written, nil))
	require.NoError(t, r.Sync(t.Context(), done))
	require.Equal(t, "by the child", string(r.HostBytes(r.pool, 3)[:12]))
	_, err = in.Write([]byte{1})
	require.NoError(t, err)
	_, err = io.ReadFull(out, step[:])
	require.NoError(t, err)
	require.Equal(t, byte('='), step[0])
	// The child is killed; the memory stays, and is whole.
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	require.Equal(t, "by the child", string(r.HostBytes(r.pool, 3)[:12]))
}

// TestChild is the other process of TestAnotherProcess.
func TestChild(t *testing.T) {
	shape := os.Getenv("KVACTOR_EXPORT")
	if shape == "" {
		t.Skip("it is run by TestAnotherProcess")
	}
	var e host.Export
	require.NoError(t, json.Unmarshal([]byte(shape), &e))
	e.Device, e.Host = os.NewFile(3, "device"), os.NewFile(4, "host")
	d := open(t, host.Config{})
	pool, err := d.ImportPool(&e)
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	page := gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 3}
	kernel, err := d.Launch(s, gpu.Kernel{Writes: []gpu.Access{{Slot: page}},
		Run: func(b gpu.PageBytes) { copy(b(page), "by the child") }})
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background(), kernel))
	_, _ = os.Stdout.Write([]byte("w"))
	_, err = os.Stdin.Read(make([]byte, 1))
	require.NoError(t, err)
	verdict := []byte("=")
	if string(d.HostBytes(pool, 3)[:12]) != "by the child" {
		verdict = []byte("!")
	}
	_, _ = os.Stdout.Write(verdict)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
}

// An imported pool follows its owner, and what makes no sense is refused.
func TestImport(t *testing.T) {
	r := newRig(t, host.Config{}, sharedSpec)
	e, err := r.Export(r.pool)
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	reader := open(t, host.Config{})
	pool, err := reader.ImportPool(e)
	require.NoError(t, err)
	copy(r.HostBytes(r.pool, 1), "shared")
	require.Equal(t, "shared", string(reader.HostBytes(pool, 1)[:6]))

	require.NoError(t, r.Resize(r.pool, 64))
	s, err := reader.NewStream("s")
	require.NoError(t, err)
	read := &gpu.Batch{Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 63},
		Dst: gpu.Slot{Pool: pool, Tier: messages.Secondary}, Bytes: 4096,
	}}}
	_, err = reader.Submit(s, read)
	require.ErrorContains(t, err, "no primary page 63")
	grown := *e
	grown.DevicePages = 64
	require.NoError(t, reader.UpdateImport(pool, &grown))
	in := r.submit(r.a, nil, r.slot(messages.Secondary, 1), r.slot(messages.Primary, 63))
	require.NoError(t, r.Sync(t.Context(), in))
	done, err := reader.Submit(s, read)
	require.NoError(t, err)
	require.NoError(t, reader.Sync(t.Context(), done))
	require.Equal(t, "shared", string(r.HostBytes(r.pool, 0)[:6]))

	require.ErrorIs(t, reader.Resize(pool, 8), host.ErrImported)
	_, err = reader.Export(pool)
	require.ErrorIs(t, err, host.ErrImported)
	grown.DevicePages = 65 * 512
	require.Error(t, reader.UpdateImport(pool, &grown))
	require.Error(t, r.UpdateImport(r.pool, e), "it was not imported")
	require.NoError(t, reader.DestroyPool(pool))

	plain := newRig(t, host.Config{}, spec)
	_, err = plain.Export(plain.pool)
	require.ErrorIs(t, err, host.ErrNotShared)
	for _, wrong := range []func(*host.Export){
		func(e *host.Export) { e.PageBytes = 0 },
		func(e *host.Export) { e.SpaceBytes = 1 << 40 },
		func(e *host.Export) { e.DevicePages = 1 << 20 },
		func(e *host.Export) { e.HostPages = 1 << 20 },
		func(e *host.Export) { e.Host = nil },
	} {
		other := *e
		wrong(&other)
		_, err := reader.ImportPool(&other)
		require.Error(t, err)
	}
	// A file that its owner could shrink under a reader.
	f, err := os.CreateTemp(t.TempDir(), "kv")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(e.SpaceBytes))
	other := *e
	other.Device = f
	_, err = reader.ImportPool(&other)
	require.Error(t, err)
}

// Nobody who has the file can take memory from under the owner.
func TestFilesKeepTheirSize(t *testing.T) {
	r := newRig(t, host.Config{}, sharedSpec)
	e, err := r.Export(r.pool)
	require.NoError(t, err)
	require.Error(t, e.Device.Truncate(0))
	require.Error(t, e.Host.Truncate(1<<30))
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
}

// Pools of large pages of the system and more ask for such pages, in both kinds of memory.
func TestHugePagesAreAskedFor(t *testing.T) {
	for _, shared := range []bool{false, true} {
		spec := sharedSpec
		spec.HostPages, spec.Shared = 1024, shared
		r := newRig(t, host.Config{}, spec)
		at := address(r.HostBytes(r.pool, 0))
		maps, err := os.ReadFile("/proc/self/smaps")
		require.NoError(t, err)
		var within, found bool
		for line := range strings.Lines(string(maps)) {
			var from, to uint64
			if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
				within = from <= at && at < to
			}
			if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && within {
				assert.Contains(t, strings.Fields(flags), "hg", "shared: %v", shared)
				found = true
			}
		}
		if !found {
			t.Skip("the system does not tell the flags of memory")
		}
	}
}
