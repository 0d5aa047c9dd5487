// Package daemon serves engines to other processes over a socket.
//
//	listener ──▶ session ── a goroutine for each connection: reads a request, serves it,
//	                │        writes the answer
//	                ├──▶ handles      what the session holds: claims, writes, pins
//	                ├──▶ attachments  connections of other processes that copy for it
//	                ▼
//	             engines ──▶ instance   an engine, the memory of its pages, who uses it
//
// A daemon is a host of package kvactor. A match is a sequence that holds the prefix it has
// found; a write is a sequence of whole blocks, whose pages the client fills and the daemon
// commits. When a session has ended, whatever has ended it, its sequences are released as soon as
// every process that may still copy has closed its connection; what was not committed is never
// found.
//
// No token and no salt is written to a log.
package daemon
