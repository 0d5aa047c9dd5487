package ops

import "github.com/kvactor/kvactor/internal/host"

// Engine is what two implementations must have to be compared: the requests of
// a host.
type Engine = host.Engine
