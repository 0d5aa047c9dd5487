// Package evict decides which page of a memory is evicted next. Each pool has a Core for its pages
// on the device, and the offloader has one for the host memory of each pool. Neither of them knows
// the policy.
//
// # What a Core knows
//
// A Core has one record for each page: the latest use of its contents, the depth of their block in
// its prefix, their priority, and the tenant they count for. The owner of the pages tells it what
// happens to each page:
//
//	Join    the page counts for a tenant          Leave   it counts for none
//	Store   it has contents                       Forget  it has none
//	Add     the contents may be evicted           Remove  they may not: someone holds them
//
//	Touch, SetPriority, SetUseless   the use, priority or usefulness has changed, whether the
//	                                 page may be evicted or not
//	Advance                          time has passed
//
// and asks it
//
//	Victim, VictimUpTo         which page makes room for a tenant
//	FirstOf, FirstOver, First  which page each rule of the quotas would choose, see below
//	Peek                       which pages are evicted next, in order
//
// # Order
//
// Pages whose contents also exist elsewhere are evicted first, whatever their priority. Then comes
// the lowest priority, and within one priority first the pages that no match can use. That depends
// on what other pools hold, so the tree says which they are. The policy orders the rest.
//
// # Quotas
//
// With quotas a page is evicted by the first rule that applies:
//
//	the tenant has reached its quota and has such pages    the first of its own (FirstOf)
//	tenants over their quotas have such pages              the first of theirs (FirstOver)
//	otherwise                                              the first of all (First)
//
// "Such" pages may be evicted, and "first" is by the order above. So a tenant may use more than its
// quota while no other needs the memory, and then loses pages before tenants within their quotas.
//
// # Policies
//
// A Policy makes queues. Each tenant has two for each priority, one of pages that no match can use
// and one of the others. A Queue returns the page to evict next. The Core handles priorities and
// tenants, so a queue only has to say which of its pages is worth the least.
//
//	lru         the least recently used page; of pages used at once, the deepest    lru.go
//	forecast    the page whose next use is worth the least to wait for              forecast.go
//
// A program can add policies with Register, whose example is a complete one. Package published adds
// those of papers. A Policy may also be Tiered and Inspected, and a Queue Checked. TestModel tests
// each policy: priorities and quotas must hold, and each page must be in one queue, once.
//
// Host memory isn't told about requests. When a page is offloaded, the device's Core says what it
// knows of the contents (Noted), and the host's Core is told (Note).
//
// Three more calls serve forecast alone, so they are methods of Core and not of Policy: Await says
// what waiting requests are going to use, Follow the order of checkpoints, and RankBy lends a host
// Core the device Core's ranking while it chooses a victim.
//
// # Cost
//
//	lru: Add, Remove, First   O(1) for pages that come in the order of eviction, as nearly all do;
//	                          else O(log pages)
//	forecast: the same        O(1) amortized: a survey of 512 to 1,023 pieces serves many evictions
//	quotas                    O(tenants) for each victim
//
// A page takes 40 bytes. With forecast a page takes 4 more, and each run of pages ("piece") 128.
package evict
