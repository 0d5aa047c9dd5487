// Package evict orders the evictable pages of one memory. Each device pool holds a Core, and so
// does the host memory of each pool; neither the pool nor the offloader knows the policy.
//
// # What a Core knows
//
// The Core has one record for each page: the latest use of its contents, the depth of their block
// in its prefix, their priority, and the tenant they count for. The owner of the pages tells it
// what happens to each:
//
//	Join    a page counts for a tenant            Leave   ...for none
//	Store   it has contents                       Forget  ...none
//	Add     the contents may be evicted           Remove  ...not as long as someone holds them
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
// A Policy makes a Queue for the pages of each tenant and priority, which returns the page to evict
// next. The Core handles priorities and tenants, so a queue only has to say which of its pages is
// worth the least.
//
//	lru              the least recently used page, of one use the deepest      lru.go
//	forecast         the page whose next use is worth the least to wait for    forecast.go and others
//	arc              used once or more often, by hits among what was evicted   arc.go
//	s3_fifo          not used again in a small queue for new blocks            s3fifo.go
//	w_tinylfu        used less often than what it would replace                tinylfu.go
//	gdsf_depth       the leaf of the fewest uses times work                    gdsf.go
//	superseded_lru   the rest of a run that a prompt has left, then lru        superseded.go
//
// A policy that learns is told what requests did: Release gives the path of an ending request with
// its times, and Await what a waiting request will use. A policy that learns nothing embeds
// indifferent, and is a file with two methods for the policy and a type that implements Queue. A
// policy that ranks each block embeds perBlock, and is only a rule. Add its name to policies and to
// windows.EvictionPolicies. TestModel tests every policy: whatever it prefers, priorities and
// quotas hold, and it has each page once. TestPublished compares the policies from papers with
// their published forms.
//
// Host memory isn't told about requests. When a page is offloaded, the device pool's Core reports
// what it knew about it (Noted) and the host Core records that (Note). While the host Core chooses
// a victim, it may use the device pool's ranking (RankBy).
//
// # Cost
//
//	Add, Remove, First of lru          O(1) where pages come in the order of eviction, as nearly
//	                                   all do, otherwise O(log pages)
//	of forecast                        O(1) amortized: a survey of 512 pieces serves many evictions
//	Add, Remove, First of the others   O(log pages)
//	with quotas                        O(tenants) for each victim
//
// A page takes 40 bytes. With forecast it takes 4 more, and a piece, a run of pages, 128. With
// the policies that rank blocks it takes 64 more, and what they remember of evicted blocks.
package evict
