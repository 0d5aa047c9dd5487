package resources

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Collection is the resources of a model, in the order in which its layers add
// them. The zero value is empty. The order decides which resource is the reference
// of the others.
type Collection struct {
	entries []entry
	names   map[string]bool
}

// entry is one resource with its name and the layer that uses it.
type entry struct {
	name     string
	layer    int
	resource Resource
}

// Add adds a resource of a layer, the first of its kind being the reference of the
// others; its name is the kind's with the layer's number:
// Add("kv_cache", 0, r) adds kv_cache_0. The error is an ErrBadRequest refusal: a name
// that is there already, a layer out of range or with keys and values already, wrong
// values.
func (c *Collection) Add(kind string, layer int, r Resource) error {
	name := fmt.Sprintf("%s_%d", kind, layer)
	refuse := func(format string, args ...any) error {
		return refusals.New(messages.ErrBadRequest, "resource %s: "+format,
			append([]any{name}, args...)...)
	}
	switch {
	case kind == "":
		return refuse("its kind has no name")
	case layer < 0 || layer >= windows.MaxLayers:
		return refuse("layer %d is not between 0 and %d", layer, windows.MaxLayers-1)
	case r == nil:
		return refuse("it is nil")
	case c.names[name]:
		return refuse("there is one of this name already")
	}
	if s := r.problem(); s != "" {
		return refuse("%s", s)
	}
	if attends(r) {
		// A layer is in one attention pool, so it has one pair of keys and values.
		for _, e := range c.entries {
			if attends(e.resource) && e.layer == layer {
				return refuse("layer %d has keys and values already, %s", layer, e.name)
			}
		}
	}
	if shared, ok := r.(SharedKV); ok && ownerOf(c.entries, shared.Layer) == nil {
		return refuse("layer %d has no keys and values of its own to share", shared.Layer)
	}
	if c.names == nil {
		c.names = make(map[string]bool)
	}
	c.names[name] = true
	c.entries = append(c.entries, entry{name, layer, r})
	return nil
}

// resolved has the element types that the configuration sets in place of the layers' own, so that
// whatever is decided, sized or located afterwards knows one type. What the configuration says
// wrongly is left to its Validate.
func (c *Collection) resolved(cache windows.Config) *Collection {
	r := &Collection{entries: slices.Clone(c.entries)}
	for i := range r.entries {
		switch of := r.entries[i].resource.(type) {
		case PagedKV:
			of.DType = configured(cache.DType, of.DType)
			r.entries[i].resource = of
		case SSM:
			of.DType = configured(cache.MambaSSMCacheDType, of.DType)
			r.entries[i].resource = of
		}
	}
	return r
}

// first is the first entry of a kind; nil without one.
func first[R Resource](entries []entry) *entry {
	for i := range entries {
		if _, ok := entries[i].resource.(R); ok {
			return &entries[i]
		}
	}
	return nil
}

// ownerOf is the entry of the keys and values of a layer; nil if it has none of its own.
func ownerOf(entries []entry, layer int) *entry {
	for i := range entries {
		if _, paged := entries[i].resource.(PagedKV); paged && entries[i].layer == layer {
			return &entries[i]
		}
	}
	return nil
}

// attends tells whether a resource is the keys and values of its layer.
func attends(r Resource) bool {
	switch r.(type) {
	case PagedKV, SharedKV:
		return true
	default:
		return false
	}
}

// configured is the element type of a setting, or a layer's own.
func configured(setting string, own windows.DType) windows.DType {
	if d := windows.DType(setting); d.Known() {
		return d
	}
	return own
}

// Layer is a layer of a model that says what it keeps. Hosts implement it for their layers.
type Layer interface {
	// Keeps lists what the layer keeps; nil: nothing.
	Keeps() []Kept
}

// Kept is one resource that a layer keeps. Kind is the beginning of its name; see Collection.Add.
type Kept struct {
	Kind     string
	Resource Resource
}

// Declare collects what the layers of a model keep, in their order. The error joins all refusals
// of Collection.Add.
func Declare(layers ...Layer) (*Collection, error) {
	c := new(Collection)
	var errs []error
	for i, layer := range layers {
		for _, k := range layer.Keeps() {
			errs = append(errs, c.Add(k.Kind, i, k.Resource))
		}
	}
	return c, windows.Join(errs...)
}

// Names lists the resources in the order of the collection.
func (c *Collection) Names() []string {
	names := make([]string, len(c.entries))
	for i, e := range c.entries {
		names[i] = e.name
	}
	return names
}
