//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// notice is what the owner of a shared pool tells its reader, after the export
// that it concerns, as a line of JSON.
type notice struct {
	Event   EventHandle // after it the page may be read
	Page    int
	Byte    byte // all bytes of the page
	Host    bool // page 1 of the host tier has the same bytes
	Export  bool // an export follows
	Shrunk  int  // > 0: the pool is about to have so many pages
	Goodbye bool
}

const sharedPage = 4 << 20 // eight pages are a chunk

// TestSharedPool is an example of a pool that two processes use: this one owns it,
// writes pages and announces them; the other maps it, follows its chunks and reads
// the pages. It needs a driver: hardware, or the imitation of ctest.
func TestSharedPool(t *testing.T) {
	needDriver(t)
	d := openDriver(t)
	defer func() { require.NoError(t, d.Close()) }()
	conn, ended := startReader(t)
	owner := &owner{t: t, d: d, conn: conn}
	owner.open()
	owner.announce(notice{Page: 3, Byte: 7, Export: true})
	owner.announce(notice{Page: 6, Byte: 8})

	require.NoError(t, d.Resize(owner.pool, 20), "the pool gets more chunks")
	owner.announce(notice{Page: 17, Byte: 9, Export: true})

	// Before memory goes its reader must have left it: then it may be another
	// pool's.
	owner.tell(notice{Shrunk: 4})
	require.NoError(t, d.Resize(owner.pool, 4))
	require.NoError(t, d.Resize(owner.pool, 12))
	owner.announce(notice{Page: 11, Byte: 10, Export: true})
	owner.send(notice{Goodbye: true})
	require.NoError(t, ended())
	require.NoError(t, owner.event.Close())
}

// owner is the side that has the pool.
type owner struct {
	t      *testing.T
	d      *Device
	conn   *net.UnixConn
	pool   gpu.Pool
	stream gpu.Stream
	event  *SharedEvent
}

func (o *owner) open() {
	var err error
	o.pool, err = o.d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: sharedPage, DevicePages: 8,
		HostPages: 2, MaxDevicePages: 24, Shared: true})
	require.NoError(o.t, err)
	o.stream, err = o.d.NewStream("onboard")
	require.NoError(o.t, err)
	o.event, err = o.d.NewSharedEvent()
	require.NoError(o.t, err)
}

// announce writes a page and tells the reader of it at once: the event orders the
// reader behind the copy.
func (o *owner) announce(n notice) {
	fill(o.d.HostBytes(o.pool, 1), n.Byte)
	_, err := o.d.Submit(o.stream, &gpu.Batch{Label: "announced", Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: o.pool, Tier: messages.Secondary, Page: 1},
		Dst: gpu.Slot{Pool: o.pool, Page: messages.PageID(n.Page)}, Bytes: sharedPage}}})
	require.NoError(o.t, err)
	require.NoError(o.t, o.event.Record(o.stream))
	n.Event, n.Host = o.event.Handle, true
	o.tell(n)
}

// tell sends a notice and waits until the reader has done what it says.
func (o *owner) tell(n notice) {
	o.t.Helper()
	o.send(n)
	if n.Export {
		e, err := o.d.Export(o.pool)
		require.NoError(o.t, err)
		require.NoError(o.t, WriteExport(o.conn, e))
		require.NoError(o.t, e.Close())
	}
	answer := make([]byte, 1)
	_, err := io.ReadFull(o.conn, answer)
	require.NoError(o.t, err, "the reader has failed")
}

func (o *owner) send(n notice) {
	text, err := json.Marshal(n)
	require.NoError(o.t, err)
	_, err = o.conn.Write(append(text, '\n'))
	require.NoError(o.t, err)
}

const readerSocket = "KVACTOR_SHARED_POOL_SOCKET"

// startReader starts this program again as the other process, with a socket.
func startReader(t *testing.T) (conn *net.UnixConn, ended func() error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	reader := exec.Command(os.Args[0], "-test.run=^TestSharedPoolReader$")
	reader.Env = append(os.Environ(), readerSocket+"=3")
	reader.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	reader.Stdout, reader.Stderr = &out, &out
	require.NoError(t, reader.Start())
	require.NoError(t, theirs.Close())
	conn = connOf(t, pair[0])
	t.Cleanup(func() { _ = conn.Close() })
	return conn, func() error {
		if err := reader.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, &out)
		}
		return nil
	}
}

func connOf(t *testing.T, fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "socket")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return conn.(*net.UnixConn)
}

// TestSharedPoolReader is the other process of TestSharedPool.
func TestSharedPoolReader(t *testing.T) {
	if os.Getenv(readerSocket) == "" {
		t.Skip("it is started by TestSharedPool")
	}
	d := openDriver(t)
	defer func() { require.NoError(t, d.Close()) }()
	r := &reader{t: t, d: d, conn: connOf(t, 3)}
	r.open()
	for {
		n := r.receive()
		switch {
		case n.Goodbye:
			return
		case n.Shrunk > 0:
			r.export.DevicePages = n.Shrunk
			require.NoError(t, d.UpdateImport(r.pool, r.export))
		default:
			if n.Export {
				r.follow()
			}
			r.read(n)
		}
		_, err := r.conn.Write([]byte{1})
		require.NoError(t, err)
	}
}

// reader is the side that maps the pool.
type reader struct {
	t      *testing.T
	d      *Device
	conn   *net.UnixConn
	own    gpu.Pool // where it copies pages to
	stream gpu.Stream
	export *Export
	pool   gpu.Pool
}

func (r *reader) open() {
	var err error
	r.own, err = r.d.CreatePool(gpu.PoolSpec{Name: "own", PageBytes: sharedPage, HostPages: 1})
	require.NoError(r.t, err)
	r.stream, err = r.d.NewStream("read")
	require.NoError(r.t, err)
}

// receive reads a line byte by byte: what follows may be the first byte of an
// export, whose files would be lost in a buffer.
func (r *reader) receive() (n notice) {
	var line []byte
	one := make([]byte, 1)
	for {
		_, err := io.ReadFull(r.conn, one)
		require.NoError(r.t, err)
		if one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	require.NoError(r.t, json.Unmarshal(line, &n))
	return n
}

// follow maps the pool, or what it has become.
func (r *reader) follow() {
	e, err := ReadExport(r.conn)
	require.NoError(r.t, err)
	if r.export == nil {
		r.pool, err = r.d.ImportPool(e)
	} else {
		err = errors.Join(r.export.Close(), r.d.UpdateImport(r.pool, e))
	}
	require.NoError(r.t, err)
	r.export = e
	require.Error(r.t, r.d.Resize(r.pool, 1), "its owner resizes it")
	_, err = r.d.Export(r.pool)
	require.ErrorIs(r.t, err, ErrNotShared, "its owner exports it")
}

// read copies an announced page to memory of its own, behind the owner's event.
func (r *reader) read(n notice) {
	event, err := r.d.OpenSharedEvent(n.Event)
	require.NoError(r.t, err)
	ready, err := event.Ticket()
	require.NoError(r.t, err)
	done, err := r.d.Submit(r.stream, &gpu.Batch{Waits: []gpu.Ticket{ready}, Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(n.Page)},
		Dst: gpu.Slot{Pool: r.own, Tier: messages.Secondary}, Bytes: sharedPage}}})
	require.NoError(r.t, err)
	require.NoError(r.t, r.d.Sync(context.Background(), done))
	want := bytes.Repeat([]byte{n.Byte}, sharedPage)
	assert.True(r.t, bytes.Equal(want, r.d.HostBytes(r.own, 0)), "page %d", n.Page)
	if n.Host {
		assert.True(r.t, bytes.Equal(want, r.d.HostBytes(r.pool, 1)), "the host tier is shared, too")
	}
	require.NoError(r.t, event.Close())
}

// An export goes over a socket with more files than a message takes.
func TestExportsOverASocket(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	a, b := connOf(t, pair[0]), connOf(t, pair[1])
	sent := &Export{Pool: "kv", UUID: "GPU-1", PageBytes: 4096, ChunkBytes: 8192, SpaceBytes: 1 << 20,
		DevicePages: 5, HostPages: 1}
	for i := range 2*filesInMessage + 7 {
		f, memory, err := mapShared("chunk", 4096)
		require.NoError(t, err)
		memory[0] = byte(i)
		require.NoError(t, syscall.Munmap(memory))
		sent.Chunks = append(sent.Chunks, f)
	}
	sent.Host, sent.Chunks = sent.Chunks[0], sent.Chunks[1:]
	written := make(chan error)
	go func() { written <- WriteExport(a, sent) }()
	got, err := ReadExport(b)
	require.NoError(t, err)
	require.NoError(t, <-written)
	require.Len(t, got.Chunks, len(sent.Chunks))
	for i, f := range append(got.Chunks, got.Host) {
		first := make([]byte, 1)
		_, err := f.ReadAt(first, 0)
		require.NoError(t, err)
		assert.Equal(t, byte((i+1)%len(append(sent.Chunks, sent.Host))), first[0])
	}
	require.NoError(t, errors.Join(got.Close(), sent.Close()))
	assert.Equal(t, sent, got)
	_, err = a.Write([]byte{0xFF, 0, 0, 0})
	require.NoError(t, err)
	_, err = ReadExport(b)
	assert.ErrorContains(t, err, "there may be 65536")
	require.NoError(t, errors.Join(a.Close(), b.Close()))
}

// A description whose numbers of files cannot be right is refused before any file is read.
func TestReadExportRefusesCounts(t *testing.T) {
	for _, text := range []string{`{"Files":-1,"Tier":true}`, `{"Files":-5}`,
		`{"Files":4611686018427387904}`} {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		a, b := connOf(t, pair[0]), connOf(t, pair[1])
		message := append([]byte{0, 0, 0, byte(len(text))}, text...)
		_, err = a.Write(message)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		_, err = ReadExport(b)
		assert.ErrorContains(t, err, "files", text)
		require.NoError(t, b.Close())
	}
}

// Whatever comes over the socket, with whatever files beside it, an export is read or refused:
// no file is left open, and no more is waited for than has been announced.
func FuzzReadExport(f *testing.F) {
	f.Add([]byte(`{"Pool":"kv","Files":1,"Tier":true}`), uint8(2), uint8(2))
	f.Add([]byte(`{"Pool":"kv","Files":1}`), uint8(3), uint8(3))
	f.Add([]byte(`{"Files":2}`), uint8(1), uint8(9))
	f.Add([]byte(`{"Files":65536}`), uint8(0), uint8(0))
	f.Add([]byte(`{"Files":-1}`), uint8(0), uint8(1))
	f.Add([]byte(`null`), uint8(1), uint8(1))
	f.Add([]byte{0xFF}, uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, files, count uint8) {
		if len(text) > 4096 || files > filesInMessage {
			return
		}
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		a, b := connOf(t, pair[0]), connOf(t, pair[1])
		defer b.Close()
		_, err = a.Write(append([]byte{0, 0, byte(len(text) >> 8), byte(len(text))}, text...))
		require.NoError(t, err)
		if files > 0 {
			fds := make([]int, files)
			for i := range fds {
				fds[i] = int(os.Stdin.Fd())
			}
			_, _, err = a.WriteMsgUnix([]byte{count}, syscall.UnixRights(fds...), nil)
			require.NoError(t, err)
		}
		require.NoError(t, a.Close())
		before := openFiles(t)
		e, err := ReadExport(b)
		if err == nil {
			wanted := len(e.Chunks)
			if e.Host != nil {
				wanted++
			}
			assert.True(t, wanted == 0 || wanted == int(files))
			require.NoError(t, e.Close())
		}
		assert.Equal(t, before, openFiles(t), "descriptors of this process")
	})
}

// openFiles counts the descriptors of the process.
func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
