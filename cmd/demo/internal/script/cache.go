package script

import (
	"errors"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// cache reads the cache configuration over its defaults, as files of it are read. Wrong types
// are faults of shape; unknown names and wrong values are problems of the configuration,
// reported with all others.
func (o *object) cache(c *windows.Config) error {
	value, ok := o.take("cache")
	if ok && value.kind() != kindObject {
		o.wrong("cache", value, "an object")
		return nil
	}
	if !ok {
		return nil
	}
	err := kvconfig.MergeSection(c, o.path+"cache.", value)
	if errors.Is(err, messages.ErrBadRequest) {
		o.fail("%s: %v", o.op, err)
		return nil
	}
	return err
}
