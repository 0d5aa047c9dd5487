// Package zmtp speaks ZMTP 3.0, the protocol of ZeroMQ's sockets over a stream, with
// the mechanism NULL: enough for a PUB and a ROUTER that readers of events connect to.
//
//	both sides    greeting (64 bytes) ──▶ READY with the socket's type
//	SUB           message  01 topic     subscribe; 00 topic: unsubscribe
//	PUB           message  frames, all but the last with the flag MORE
//
// The library of others for it in Go waits for one peer's greeting before it accepts
// the next peer, takes memory for as many bytes as a peer announces, and writes to all
// subscribers in turn, the slow ones included. What a peer may cost is bounded here:
// the length and number of frames, and the time of the handshake and of each write.
package zmtp
