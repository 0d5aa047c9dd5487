package observer

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/metrics"
)

// Flags are --events and --aliases.
type Flags struct {
	Events  string
	Aliases []string
}

// Add adds the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Events, "events", "",
		"publish the cached blocks over ZeroMQ at an `endpoint`, such as tcp://127.0.0.1:5557, or as "+
			"vLLM's kv_events_config says in JSON; they have tokens and salts")
	flags.StringSliceVar(&f.Aliases, "aliases", nil,
		"export metrics under the `names` of other engines, too: vllm, trtllm")
}

// Read reads the flags into what an observer wants. c has the defaults.
func (f *Flags) Read(c *wire.Config, aliases *metrics.Aliases) (err error) {
	for _, name := range f.Aliases {
		switch name {
		case "vllm":
			*aliases |= metrics.AliasVLLM | metrics.AliasVLLMLegacy
		case "trtllm":
			*aliases |= metrics.AliasTensorRTLLM
		default:
			return fmt.Errorf("--aliases %s: want vllm or trtllm", name)
		}
	}
	switch {
	case f.Events == "":
		return nil
	case strings.HasPrefix(strings.TrimSpace(f.Events), "{"):
		*c, err = wire.ParseConfig([]byte(f.Events))
	default:
		c.Enable, c.Endpoint = true, f.Events
		err = c.Validate()
	}
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	return nil
}
