// Package hostmemory says how much memory the machine can still give.
package hostmemory

import (
	"os"
	"strconv"
	"strings"
)

// The files that Linux says it in.
const (
	meminfo = "/proc/meminfo"
	limit   = "/sys/fs/cgroup/memory.max" // of a container, version 2 of control groups
)

// Free is how many bytes programs can still take without others being swapped out, and no more
// than a container may have; 0: not known.
func Free() int64 { return free(meminfo, limit) }

// free is Free with other files, for tests. Without a limit, or with one that cannot be read, it is
// what meminfo says.
func free(meminfo, limit string) int64 {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	value, _, _ := strings.Cut(rest, "kB")
	kibibytes, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0
	}
	bytes := kibibytes << 10
	if text, err = os.ReadFile(limit); err != nil {
		return bytes
	}
	// "max" is no number: there is no limit.
	if most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		bytes = min(bytes, most)
	}
	return bytes
}
