//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// filesInMessage bounds the descriptors of one message; the kernel takes 253.
// It is SCM_MAX_FD of Linux.
const filesInMessage = 128

// maxHeader bounds the description of an export that ReadExport accepts.
// It is in bytes. A description has a few hundred.
const maxHeader = 1 << 16

// maxFiles bounds the chunks of an export: 2 TiB of device memory in chunks of 32 MiB. The
// number comes from another process, and each file is a descriptor of this one.
const maxFiles = 1 << 16

// exportHeader is an Export without its files.
// Files are numbers of this process; they travel as ancillary data instead.
type exportHeader struct {
	Export
	Chunks []struct{} `json:"-"` // hides that of Export
	Host   struct{}   `json:"-"`
	Files  int        // chunks
	Tier   bool       // one more, of host memory
}

// WriteExport sends an export over a Unix socket: its description, then its files
// as ancillary data of messages of one byte. The export stays the caller's to
// close. Nothing else may write to the socket meanwhile.
func WriteExport(conn *net.UnixConn, e *Export) error {
	// JSON, so that a reader written in another language can follow: the description is some
	// hundred bytes, once for a pool.
	text, err := json.Marshal(exportHeader{Export: *e, Files: len(e.Chunks), Tier: e.Host != nil})
	if err != nil {
		return err
	}
	// Four bytes of length, the highest first, then JSON.
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))),
		text...)); err != nil {
		return err
	}
	files := e.Chunks
	if e.Host != nil {
		// The capacity is cut, so that the append does not write into the export's array.
		files = append(files[:len(files):len(files)], e.Host)
	}
	for len(files) > 0 {
		n := min(len(files), filesInMessage)
		var fds []int
		for _, f := range files[:n] {
			fds = append(fds, int(f.Fd()))
		}
		// A message carries at least one byte, here the number of its files; without data the
		// kernel would deliver no ancillary data on a stream.
		if _, _, err := conn.WriteMsgUnix([]byte{byte(n)}, syscall.UnixRights(fds...), nil); err != nil {
			return fmt.Errorf("cuda: pool %s: sending %d files: %w", e.Pool, n, err)
		}
		files = files[n:]
	}
	return nil
}

// ReadExport receives an export; it is the caller's to close.
func ReadExport(conn *net.UnixConn) (*Export, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	// The length is compared before memory is taken for it.
	n := binary.BigEndian.Uint32(size[:])
	if n > maxHeader {
		return nil, fmt.Errorf("cuda: an export of %d bytes, there may be %d", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(conn, text); err != nil {
		return nil, err
	}
	var header exportHeader
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("cuda: export: %w", err)
	}
	// Without these two checks a wrong count would be an index out of range, or a wait for
	// files that never come.
	if header.Files < 0 || header.Files > maxFiles {
		return nil, fmt.Errorf("cuda: pool %s: an export of %d files, there may be %d", header.Pool,
			header.Files, maxFiles)
	}
	e := header.Export
	want := header.Files
	if header.Tier {
		want++
	}
	for len(e.Chunks) < want {
		files, err := readFiles(conn, e.Pool)
		e.Chunks = append(e.Chunks, files...)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	if len(e.Chunks) != want {
		return nil,
			errors.Join(fmt.Errorf("cuda: pool %s: %d files came, %d were announced", e.Pool, len(e.Chunks),
				want), e.Close())
	}
	if header.Tier {
		e.Host, e.Chunks = e.Chunks[want-1], e.Chunks[:want-1]
	}
	return &e, nil
}

// readFiles receives the files of one message, at least one.
func readFiles(conn *net.UnixConn, name string) (files []*os.File, err error) {
	// Room for the most files that WriteExport puts into one message, four bytes each. With
	// less room the kernel would drop descriptors and say so by a flag only.
	count := make([]byte, 1)
	ancillary := make([]byte, syscall.CmsgSpace(4*filesInMessage))
	_, n, _, _, err := conn.ReadMsgUnix(count, ancillary)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(ancillary[:n])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err // the caller closes those that have arrived
		}
		for _, fd := range fds {
			// Programs that the host starts get none of the files.
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), name))
		}
	}
	// The kernel drops descriptors that do not fit, or that the process may not open.
	if len(files) == 0 || len(files) != int(count[0]) {
		return files, fmt.Errorf("cuda: pool %s: %d files arrived where %d were sent", name, len(files),
			count[0])
	}
	return files, nil
}
