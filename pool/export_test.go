package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/windows"
)

// Rebuild makes a pool with the policy priority_lru from what is known of its pages.
func Rebuild(name string, pages int, kept []protocol.KeptPage, quotas ...windows.Quota) *Pool {
	return New(name, pages, quotas...).rebuilt(pages, kept)
}
