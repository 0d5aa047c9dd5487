//go:build !unix

package wire

import (
	"errors"
	"os"
)

// mapFile refuses: the daemon shares memory on Linux only.
func mapFile(*os.File, uint64) ([]byte, error) { return nil, errors.ErrUnsupported }
