// Package consumers holds the published events against the indexes that routers run:
// llm-d's and AIBrix's, unmodified, in this process, over real sockets. It is a module
// of its own, as these bring a few hundred modules. Its tests are all that it has:
//
//	cd bench/consumers && go test ./...
package consumers
