package daemon

import (
	"net"
	"syscall"
)

// peerOf asks the system who has connected.
func peerOf(conn net.Conn) (p peer, err error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return peer{}, nil
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var c *syscall.Ucred
		if c, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET,
			syscall.SO_PEERCRED); failed == nil {
			p = peer{known: true, pid: uint32(c.Pid), uid: c.Uid}
		}
	})
	if err == nil {
		err = failed
	}
	return p, err
}
