// Package wire has the messages of kvactord, generated from kvactord.proto, and their frames.
// Clients in Go dial with it; those in other languages generate their own from the same file.
// docs/kvactord.md tells how the messages are used.
package wire

//go:generate protoc --go_out=. --go_opt=paths=source_relative kvactord.proto
