// Package oracle is a model of the whole engine that is easy to check against
// the rules: flat lists that are searched in full, no reference counts, no
// orders kept, no messages. It answers the requests of a host like the real
// engine does, with page numbers and hashes of its own. Its tests compare the
// two, so all of it is in files of tests: the model in those named model_*.
//
// # What there is
//
//	layout ──── pools ── device pages, host pages ── each caches one block or none
//	tree ────── blocks ── key (all tokens from the start), priority, timer, session
//	                └─ spot by pool ── device page, host page, pins, use
//	references ─ sequences ── tokens, computed, tables [pool][beam][block] of pages
//	Oracle ──── pins ── spots
//
// A block is in the list as long as a pool has it. A spot with both pages has a
// clean copy in host memory. Who holds a page is found by looking at all tables
// and pins; what is available is computed again whenever it is asked.
//
// # The parts
//
// Each part is a type that models one responsibility. It knows the parts that its fields
// name, those above it here, and no others.
//
//	layout       configuration and pools: what never changes
//	clock        the time, the number of the request, what came first
//	eventLog     events that have not been read
//	tree         stored blocks: match, priorities, timers
//	references   who holds which pages, and how many are available
//	worth        which pages no match can use for want of what other pools hold
//	eviction     which cached page goes first; quotas
//	saver        what goes to the store
//	memory       take a page, evict, offload, onboard
//	fetcher      what comes from the store
//	planner      what admissions will do, and which are refused
//	admission    the same, carried out
//	offering     what is computed is stored
//	checkpoints  pages of recurrent states that belong to blocks
//	steps        commit and append
//	Oracle       the requests of a host, made of the parts
//
// # A request
//
// Timers act first. An admission is planned without changing anything (match,
// how, whether it fits; type planner) and then carried out: claims; pages for copies;
// sources released; other pages, each victim's fate in host memory decided as it
// goes; arrivals from host memory; takeovers forgotten; retention, sessions and
// recency of what is reused whole. A commit stores for all its sequences, then
// drops what left the windows, then takes the pages of the next chunks.
//
// # The comparison
//
// The tests draw runs of host operations over small worlds. A world has one to three pools of a
// dozen pages, two tokens in its alphabet and prompts that continue what was seen before, so
// that a run of thirty operations evicts, offloads, shares, copies and forgets. Both engines
// get the same requests; the names that they choose themselves are compared up to renaming:
//
//	what             compared
//	errors           code; pool, need and available of out_of_pages
//	page tables      shape, −1, and a one-to-one relation between the page
//	                 numbers that running sequences hold at that moment
//	contents         by key: the tier in each pool
//	stats            all but rounds
//	events           pool by pool, hashes by a one-to-one relation that is
//	                 learned as blocks are stored; a mirror follows each side
//	handles          kept in pairs
//	stores           how many objects each operation has saved
//
// Time moves only by the operation advance, for both. The comparison is tested, too: the
// model agrees with itself, and models that are wrong in one thing each are found.
//
// # Decisions where the rules are silent
//
// Matching:
//   - "Shares the most leading tokens" counts up to P−1; beyond it there is a
//     tie, which the block last stored or claimed wins.
//   - "Stored or claimed": newly stored in some pool; reused whole; copied from.
//     A store that finds the block, a pin and a prefetch do not count.
//   - Blocks reused whole are all stored blocks of [0, L), also those that no
//     pool claims because they lie outside every window.
//   - An admission that goes without partial reuse is matched again, whole
//     blocks only: a window may then need blocks that it did not need before.
//   - The reach may lie inside several blocks: the one last stored or claimed
//     counts. If no full-attention pool lacks it, why is window_hole, also when
//     what stood in the way was a rule about copying.
//   - A lookup gives what the admission would reuse; if it would be refused for
//     want of pages, or as too long, what it would reuse otherwise.
//
// Batches:
//   - Which admissions want a block is what the matches say, including those
//     refused afterwards; values and too_long are checked before.
//   - A block that two admissions bring from host memory is paid and counted as
//     onboarded by the first that is served.
//   - A copy needs one page in each pool beyond what is held, claimed or a source
//     of the batch, and beyond earlier copies. A reserved page will do: the source
//     stands in for it.
//   - Available does not subtract sources of copies, which are released.
//
// Pages:
//   - A partial copy from host memory is no onboarding: its contents stay there.
//   - A chunked prefill's takeover of a device page is covered by its reserve.
//   - A pin that would eat into a reserve is refused (out_of_pages): a commit
//     must never fail. For the same reason a pinned block in host memory stays
//     there when a chunked prefill stores it again in a commit of more blocks
//     than pages are available.
//   - A use is never replaced by an earlier one, which a commit that continues an
//     old request could bring.
//   - Of pages of one priority, use and depth (the source of a copy and the
//     sequence's own block, once it has left the window) the one released first
//     goes first. Of clean copies of one request and depth, the one made first.
//   - An append takes the pages of a sequence's copies, then releases what they
//     replace, then takes its new pages: as for partial copies. What parents that
//     were not chosen held is available.
//   - Reset keeps the clean copies of blocks that it keeps.
//
// Priorities and sessions:
//   - Retention of blocks reused whole is set after the admission's victims were
//     chosen.
//   - A sequence offers pages that cache nothing yet: only with such a one does
//     it store a block or store it too.
//   - "Once" is kept by block: tokens generated again after a rewind do not set
//     it again. A fork counts as the same request.
//   - Named by a token selector is who has these tokens at that moment, with
//     beams any of them; forks made afterwards are named with their origin.
//
// Refusals:
//   - A step for a sequence that an earlier step of the request names is
//     bad_request if the earlier was valid, served or not.
//   - Fork before the prompt is computed is bad_request, fork and rewind with
//     beams not_supported.
//   - A range that begins beyond the prompt is clipped to nothing, not refused.
//
// Events:
//   - Over the limit the oldest is lost; a snapshot drops what was not read.
//   - A stored duplicate that takes a host block's place is a tier change.
//   - A takeover from host memory is a removal only.
//
// Recurrent states:
//   - All commits of a step store, then they make their checkpoints in order.
//   - A block that is not stored when its commit wants a checkpoint makes none, and
//     none is counted as skipped.
//   - A checkpoint that may not evict what is worth more than its block evicts, by
//     the usual rule, among the rest: with quotas, too.
//   - An admission that goes without partial reuse for want of a page is matched
//     again, whole blocks only, before the pages for working pages are looked at.
//   - Without attention pools a block is stored with its first checkpoint, and what
//     attention would give is how far the prompt leads to stored blocks.
//
// Stores:
//   - What a request makes a page to be saved is decided when the request is over: a page
//     that has gone by then is not saved, and the priority is the one of then.
//   - What is saved and lost, since the store failed, is saved when its block is reused the
//     next time. With the other policies its moment is over.
//   - The blocks of a batch that several admissions reuse are saved once.
//   - A clean copy of a block of the match may be reclaimed by a fetch.
//   - With quotas a fetch takes free host pages within that of its salt, and displaces
//     nothing.
//   - A fetch is no sequence: it changes no session. A block that it brings and that no
//     pool has belongs to none.
//
// Rebalancing is not part of the model.
package oracle
