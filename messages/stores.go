package messages

import "time"

// StoreStats counts what an engine and its store have exchanged.
type StoreStats struct {
	SavedObjects, SavedBytes     int64
	FetchedObjects, FetchedBytes int64         // what was asked for, there and right: the hits
	Misses                       int64         // pages that were asked for and were not there
	Rejected                     int64         // bodies that were not what was asked for
	Dropped                      int64         // pages that were not saved: no room, or the store failed
	Calls, Errors                int64         // Errors are the calls that failed
	CallTime                     time.Duration // all calls together
	BreakerOpen                  bool          // the store is not asked, because it has failed too often
	BreakerOpened                int64         // how often that has begun
	// Latency counts calls by the time that they took: Latency[i] are those of at most
	// StoreLatencyBounds()[i] and longer than the bound before, the last those beyond.
	Latency [StoreLatencies]int64
}

// StoreLatencies is the number of counts of StoreStats.Latency.
const StoreLatencies = 13

// StoreLatencyBounds are the bounds of StoreStats.Latency: from 100 µs, which a store on
// the same machine needs, to 10 s, twice the time that a call has by default.
func StoreLatencyBounds() [StoreLatencies - 1]time.Duration {
	return [StoreLatencies - 1]time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
	}
}
