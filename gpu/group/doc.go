// Package group makes one device of the devices of a tensor-parallel group, each of which holds its
// share of the KV heads of every page. An engine on a group makes each decision once and has every
// rank do each copy, so the ranks can never disagree about what a page holds.
//
//	           engine: page 7 of pool 0 → host page 3, ticket (stream 1, 42)
//	              │
//	            group ── stream 1, ticket 42 = tickets 42, 42, 57 of the ranks
//	     ┌────────┼────────┐
//	  rank 0    rank 1   rank 2      each: pool 0, page 7 → its own host page 3
//	heads 0–1  heads 2–3 heads 4–5
//
// # Sizes
//
// All sizes are those of one rank: an engine is opened with the geometry of one rank
// (windows.Model.OfRank, or hfconfig with TensorParallel), a page has as many bytes as one rank's
// share of it, and Memory is that of the rank with the least. Page numbers, offsets and sizes of a
// copy are the same on all ranks, so a batch is passed on unchanged. Ranks that hold the same
// heads, because there are more ranks than heads, hold equal bytes; so do all ranks of latent
// attention (MLA).
//
// Host memory is per rank as well: each rank has a host tier of its own, which its backend
// allocates near it, and the group's host page n is the host page n of every rank. gpu.HostShare
// reads one share; gpu.AppendHostPage appends all shares in the order of the ranks, which is what
// stores keep.
//
// # Order
//
// A stream of the group is a stream of each rank. What is queued on it is queued on
// all ranks in one order, whichever goroutines queue it. A ticket of the group stands
// for a ticket of each rank: work of one rank waits only for work of the same rank,
// because no rank touches the memory of another; the host sees the ticket pass when
// it has passed on all. A slow rank delays what waits for it and reorders nothing.
//
// # Failure
//
// A copy that one rank refuses counts as refused on all: the error names the rank, and the other
// ranks have finished their part when Submit returns. The bytes of destinations from the refused
// copy on are then undefined.
//
// A rank that is lost, or that refuses what others have taken, ends the group: every call answers
// an error that is gpu.ErrDeviceLost and names the rank. Sync then still waits for the other ranks,
// and DestroyPool and DestroyStream still give back what these hold, so nothing is written to
// memory after the host gets it back.
//
// # Kernels
//
// A kernel in Go runs once on each rank, with the rank's number in
// gpu.Kernel.RunRank; ranks may run it at the same time. It may ask Done of the group
// and must not queue work on it: a rank may run it within a Submit of the group that
// finds the rank's queues full.
//
// A host with its own kernels joins and splits: Adopt makes a stream of the group from one stream
// of each rank, Join makes a ticket from one ticket of each, and StreamOf, PoolOf and TicketOf
// return one rank's stream, pool or ticket.
package group
