package archtest

import (
	"path"
	"strings"
)

// place says what the packages below one folder may do.
type place struct {
	dir string
	// own are the folders of this module that may be imported, with all below
	// them; the place's own folder always is.
	own []string
	// others are the modules of others that may be imported.
	others []string
	// core: single-threaded and deterministic.
	core bool
	// free: may import everything but what only tests may.
	free bool
}

const (
	protoactor = "github.com/asynkron/protoactor-go"
	yaml       = "github.com/goccy/go-yaml"
	purego     = "github.com/ebitengine/purego"
	cuda       = "gpu/cuda"
	attention  = "gpu/attention" // of hosts: the engine never imports it
	memory     = "gpu/host"      // the same
	stores     = "offloader/stores"
	published  = "events/publish"
	papers     = "pool/evict/published"
	resources  = "windows/resources"
	root       = "" // the module's folder itself, as an import
	prometheus = "github.com/prometheus/client_golang"
)

// picture has a place for every folder; the longest that fits counts.
var picture = []place{
	{dir: "messages", core: true},
	{dir: "internal/protocol", own: []string{"messages"}, core: true},
	{dir: "internal/refusals", own: []string{"messages"}, core: true},
	{dir: "windows", own: []string{"messages", "internal/refusals", "internal/protocol"}, core: true},
	{dir: "windows/kvconfig", own: []string{"messages", "internal/refusals", "windows"},
		others: []string{yaml}},
	{dir: "windows/hfconfig", own: []string{"messages", "internal/refusals", "windows"}},
	{dir: "windows/hfconfig/gguf", own: []string{"messages", "internal/refusals", "internal/gguf",
		"windows/hfconfig"}},
	{dir: resources, own: []string{root, "messages", "internal/refusals", "windows", "gpu"}},

	{dir: "tree", own: []string{"messages", "internal/refusals", "internal/protocol", "windows",
		"internal/heap", "internal/invariants", "internal/forecast"}, core: true},
	{dir: "pool", own: []string{"messages", "pool/evict", "internal/refusals", "internal/protocol",
		"windows", "internal/heap", "internal/invariants", "internal/forecast"}, core: true},
	{dir: "pool/evict", own: []string{"messages", "internal/protocol", "windows", "internal/heap",
		"internal/invariants", "internal/forecast"}, core: true},
	{dir: papers, own: []string{"messages", "pool/evict", "internal/heap"}, core: true},
	{dir: "offloader", own: []string{"messages", "pool/evict", "internal/refusals",
		"internal/protocol", "windows", "internal/heap", "internal/invariants", "internal/forecast"},
		core: true},
	{dir: "events", own: []string{"messages", "internal/refusals", "internal/protocol", "windows",
		"internal/heap", "internal/invariants", "internal/forecast"}, core: true},

	{dir: stores, own: []string{"messages"}, others: []string{"github.com/zeebo/xxh3"}},
	{dir: stores + "/blob", own: []string{stores}, others: []string{"gocloud.dev"}},
	{dir: stores + "/valkey", own: []string{stores},
		others: []string{"github.com/valkey-io/valkey-go"}},
	{dir: stores + "/zstd", own: []string{stores}, others: []string{"github.com/klauspost/compress"}},

	// Sockets and goroutines: what serves published events to other processes.
	{dir: published, own: []string{"messages", "internal/refusals", "windows", "events"}, core: true},
	{dir: published + "/wire", own: []string{"messages", "internal/refusals", "events"}},

	{dir: "internal/gguf"},
	{dir: "internal/calls", own: []string{"messages"}},
	{dir: "metrics", own: []string{"messages", "internal/refusals", "internal/calls", "windows"},
		others: []string{prometheus}},
	{dir: "metrics/tracing", own: []string{"messages", "internal/calls"},
		others: []string{"go.opentelemetry.io/otel"}},

	{dir: "gpu", own: []string{"messages", "internal/refusals"}},
	{dir: cuda, own: []string{"messages", "internal/refusals", "gpu"}, others: []string{purego}},
	{dir: memory, own: []string{"messages", "internal/refusals", "gpu"}},
	{dir: attention, own: []string{"messages", "internal/refusals", "windows"}},

	{dir: "actors", own: []string{"messages", "pool/evict", "internal/refusals", "internal/protocol",
		"windows", "tree", "pool", "offloader", "events", "gpu"}, others: []string{protoactor}},
	{dir: "actors/coordinator", own: []string{"messages", "internal/refusals", "internal/protocol",
		"internal/invariants", "windows"}, core: true},
	{dir: "actors/mailbox", others: []string{protoactor}},
	{dir: "actors/internal/handover", own: []string{"messages", "internal/protocol"},
		others: []string{"github.com/zeebo/xxh3"}},

	{dir: "cmd", free: true},
	{dir: "bench", free: true},
	{dir: "examples", free: true},
	{dir: "internal", free: true},
	{dir: "internal/heap", core: true},
	{dir: "internal/forecast", own: []string{"internal/protocol"}, core: true},
	{dir: "internal/invariants", core: true},
	// The module's folder itself, not what is below: what a host imports.
	{dir: ".", own: []string{"messages", "internal/refusals", "windows", "gpu", "actors"},
		others: []string{protoactor}},
}

// testOnly are modules that only tests use: files ending in _test.go, and
// packages that serve tests.
var testOnly = []string{
	"github.com/stretchr/testify",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
	"github.com/cockroachdb/datadriven",
	"github.com/anishathalye/porcupine",
	"github.com/go-zeromq/zmq4", // the other side of our sockets
	"github.com/alicebob/miniredis",
}

// addOns are folders that only hosts import: the engine works without them, and the
// modules of others that they use are no concern of a host without them.
var addOns = []string{attention, memory, stores + "/blob", stores + "/valkey", stores + "/zstd",
	published, papers, resources}

// usesForeignAddOn tells whether a package of one folder that imports another folder
// imports an add-on that it is no part of.
func usesForeignAddOn(from, imported string) bool {
	for _, a := range addOns {
		if within(imported, a) && !within(from, a) {
			return true
		}
	}
	return false
}

// concurrent are the packages that have no place in a core, and why.
var concurrent = map[string]string{
	"sync":        "a lock",
	"sync/atomic": "a lock",
	"log":         "a log",
	"log/slog":    "a log",
	"math/rand":   "an order of its own",
	"os":          "the world outside",
	"net":         "the world outside",
	"context":     "a caller's deadline",
}

// clock are the functions of package time that read or wait for the clock.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

// Limits of size, in lines.
const (
	maxFile     = 500
	maxFunction = 70
)

// maxMethods is how many methods a type may have, those of what it embeds included.
const maxMethods = 60

// placeOf finds the place of a folder, a path from the module's root.
func placeOf(dir string) (place, bool) {
	var best place
	found := false
	for _, p := range picture {
		if fits := p.dir == dir || p.dir != "." && within(dir, p.dir); fits &&
			len(p.dir) >= len(best.dir) {
			best, found = p, true
		}
	}
	return best, found
}

// mayImport tells whether the place allows a folder of this module.
func (p place) mayImport(dir string) bool {
	if p.core && within(dir, stores) {
		return false
	}
	if p.free || within(dir, p.dir) {
		return true
	}
	for _, o := range p.own {
		if within(dir, o) {
			return true
		}
	}
	return false
}

// mayUse tells whether the place allows a package of another module.
func (p place) mayUse(importPath string) bool { return p.free || withinAny(importPath, p.others) }

// within tells whether a slash-separated path is root or below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func withinAny(p string, roots []string) bool {
	for _, r := range roots {
		if within(p, r) {
			return true
		}
	}
	return false
}

// servesTests tells whether a folder holds a package for tests, such as devicetest.
func servesTests(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }
