package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// dialAs connects as another user of the system.
func dialAs(t *testing.T, socket string, uid uint32) (*wire.Client, error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	const same = ^uintptr(0)
	runtime.LockOSThread() // raw calls change the user of this thread alone
	defer runtime.UnlockOSThread()
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same)
	require.Zero(t, errno)
	defer func() {
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same)
		require.Zero(t, errno)
	}()
	return wire.Dial(socket, opening())
}

// Processes of other users are refused, but for those that the configuration allows.
func TestOtherUsers(t *testing.T) {
	const allowed, other = 65533, 65534
	for _, uids := range [][]uint32{nil, {allowed}} {
		d := serve(t, func(c *Config) { c.UIDs = uids })
		require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(d.socket)), 0o755))
		_, err := dialAs(t, d.socket, other)
		require.Error(t, err)
		c, err := dialAs(t, d.socket, allowed)
		assert.Equal(t, uids == nil, err != nil, "%v", err)
		if err == nil {
			require.NoError(t, c.Close())
		}
		assert.Equal(t, uids != nil, strings.Contains(d.logged(), "65534, which is not allowed"))
		d.open(opening())
	}
}
