// Package evict orders the evictable pages of one memory. Each device pool holds a Core, and so
// does the host memory of each pool; neither the pool nor the offloader knows the policy.
//
// # What a Core knows
//
// The Core has one record for each page: the latest use of its contents, the depth of their block
// in its prefix, their priority, and the tenant they count for. The owner of the pages tells it
// what happens to each:
//
//	Join    a page counts for a tenant            Leave   it counts for none
//	Store   it has contents                       Forget  it has none
//	Add     the contents may be evicted           Remove  they may not: someone holds them
//
//	SetUseless, SetPriority, Touch   change what the order of a page depends on, whether it
//	                                 may be evicted or not
//	Advance              the time
//	Victim, VictimUpTo   the page that a tenant replaces; FirstOf, FirstOver and First its parts
//	Peek                 the pages that are evicted next, in their order
//
// The victim has the lowest priority. Among pages of that priority, those that no match can use go
// first; only the tree sees every pool, so it says which those are. Pages whose contents also exist
// elsewhere are evicted before all others. The policy decides among pages that are otherwise equal.
//
// # Quotas
//
// With quotas the page that is evicted is, with "first" by the rule above,
//
//	if the tenant has reached its quota and has pages    the first of its own
//	else if tenants over their quotas have pages         the first of theirs
//	else                                                 the first of all
//
// so any tenant may use memory that no other needs, and a tenant within its quota is protected from
// tenants over theirs.
//
// # Policies
//
// A Policy makes queues. Each tenant has two for each priority, one of pages that no match can use
// and one of the others. A Queue returns the page to evict next. The Core handles priorities and
// tenants, so a queue only has to say which of its pages is worth the least.
//
//	lru         the least recently used page, of one use the deepest      lru.go
//	forecast    the page whose next use is worth the least to wait for    forecast.go and others
//
// A program adds its own by Register, as package published does with those from papers; the example
// of Register is a whole one. A Policy may be Tiered and Inspected, and a Queue Checked, as well.
// TestModel tests every policy: whatever it prefers, priorities and quotas hold, and it has each
// page once.
//
// Host memory isn't told about requests. When a page is offloaded, the device pool's Core reports
// what it knew about it (Noted) and the host Core records that (Note). While the host Core chooses
// a victim, forecast may use the device pool's ranking (RankBy). Forecast is also told of the time,
// of what waiting requests are going to use (Await), and of the order of checkpoints (Follow); it
// is the only policy that has those calls, so they are methods of Core and not of Policy.
//
// # Cost
//
//	Add, Remove, First of lru          O(1) where pages come in the order of eviction, as nearly
//	                                   all do, otherwise O(log pages)
//	of forecast                        O(1) amortized: a survey of 512 to 1,023 pieces serves many evictions
//	with quotas                        O(tenants) for each victim
//
// A page takes 40 bytes. With forecast it takes 4 more, and a piece, a run of pages, 128.
package evict
