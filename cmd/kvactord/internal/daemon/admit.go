package daemon

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// admissions collects the prompts of a call of the engine, and which entry each belongs to.
type admissions struct {
	batch   []kvactor.Admission
	entries []int
}

func (a *admissions) add(entry int, r kvactor.AdmitRequest) {
	a.batch, a.entries = append(a.batch, kvactor.Admission{Request: r}), append(a.entries, entry)
}

// admit admits the prompts and waits for their pages. A prompt whose pages do not come in time is
// released again.
func (s *session) admit(ctx context.Context, a *admissions) {
	if len(a.batch) == 0 {
		return
	}
	_ = s.in.note(s.in.engine.AdmitBatch(ctx, a.batch))
	var late []*handle
	for i := range a.batch {
		x := &a.batch[i]
		if x.Err == nil {
			if x.Err = s.in.wait(ctx, x.Sequence); x.Err != nil && x.Sequence.Len() > 0 {
				late = append(late, &handle{sequence: x.Sequence})
			}
		}
	}
	if len(late) > 0 {
		_ = s.in.release(context.WithoutCancel(ctx), late)
	}
}

// matches finds and claims stored prefixes.
func (s *session) matches(ctx context.Context, list []*wire.Match) []*wire.Matched {
	out := make([]*wire.Matched, len(list))
	var a admissions
	for i, m := range list {
		out[i] = &wire.Matched{}
		prefix, wrong := readPrompt(m.GetPrompt())
		if wrong == nil {
			wrong = s.full(len(a.batch))
		}
		if wrong != nil {
			out[i].Error = wrong
			continue
		}
		if m.GetFetch() && s.in.stores {
			if out[i].Fetching, wrong = s.fetch(ctx, prefix); wrong != nil || out[i].Fetching {
				out[i].Error = wrong
				continue
			}
		}
		a.add(i, kvactor.AdmitRequest{
			Namespace: prefix.Namespace, Tokens: prefix.Tokens, Multimodal: prefix.Multimodal,
			Session: m.GetSession(), StoredOnly: true,
		})
	}
	s.admit(ctx, &a)
	for k, i := range a.entries {
		x := &a.batch[k]
		if out[i].Error = refusal(x.Err); x.Err != nil {
			continue
		}
		s.claimed(out[i], x.Sequence)
	}
	return out
}

// fetch tells whether the store is being asked for more of a prompt than is in memory.
func (s *session) fetch(ctx context.Context, p kvactor.Prefix) (bool, *wire.Error) {
	found, err := s.in.engine.Lookup(ctx, p)
	if err != nil {
		return false, refusal(s.in.note(err))
	}
	all := (len(p.Tokens) -
		1) / s.in.geometry.cache.TokensPerBlock * s.in.geometry.cache.TokensPerBlock
	return found.MatchedTokens < all && s.in.fetching(p, s.daemon.config.Deadline), nil
}

// claimed fills in the answer of a match.
func (s *session) claimed(out *wire.Matched, q *kvactor.Sequence) {
	if out.Reason = string(q.Admitted().MissReason); q.Reused() == 0 {
		return
	}
	out.Handle, out.Tokens = s.keep(&handle{sequence: q}), uint32(q.Reused())
	blocks := q.Reused() / s.in.geometry.cache.TokensPerBlock
	for p, table := range q.Tables() {
		pages := table[0]
		if s.in.pools[p].Kind == kvactor.KindAttention {
			pages = pages[:blocks]
		}
		out.Pages = append(out.Pages, packPages(pages))
	}
}

// reserves takes pages for blocks that are to be written.
func (s *session) reserves(ctx context.Context, list []*wire.Reserve) []*wire.Reserved {
	out := make([]*wire.Reserved, len(list))
	var a admissions
	for i, r := range list {
		out[i] = &wire.Reserved{}
		request, stored, wrong := s.readReserve(ctx, r)
		if wrong == nil {
			wrong = s.full(len(a.batch))
		}
		if out[i].Error = wrong; wrong != nil {
			continue
		}
		switch {
		case stored:
			out[i].Tokens = uint32(len(request.Tokens))
		case r.GetTail():
			s.reserveTail(ctx, out[i], request)
		default:
			a.add(i, request)
		}
	}
	s.admit(ctx, &a)
	for k, i := range a.entries {
		x := &a.batch[k]
		if out[i].Error = refusal(x.Err); x.Err != nil {
			continue
		}
		s.reserved(out[i], x.Sequence)
	}
	return out
}

// reserveTail takes pages for what the token behind the prompt attends to.
func (s *session) reserveTail(ctx context.Context, out *wire.Reserved, r kvactor.AdmitRequest) {
	q, missing, err := s.in.engine.AdmitComputed(ctx, r)
	if err == nil {
		if err = s.in.wait(ctx, q); err != nil {
			_ = s.in.release(context.WithoutCancel(ctx), []*handle{{sequence: q, write: true}})
		}
	}
	if out.Error = refusal(s.in.note(err)); err != nil {
		return
	}
	out.Handle = s.keep(&handle{sequence: q, write: true, tail: true})
	tables := make([][]kvactor.PageID, len(s.in.pools))
	for p := range tables {
		tables[p] = slices.Repeat([]kvactor.PageID{kvactor.NoPage}, len(q.Tables()[p][0]))
	}
	for _, m := range missing {
		tables[m.Pool][m.Block] = m.Page
	}
	for p := range tables {
		out.Pages = append(out.Pages, packPages(tables[p]))
	}
}

// readReserve reads a reservation; stored: there is nothing to be written.
func (s *session) readReserve(
	ctx context.Context, r *wire.Reserve,
) (request kvactor.AdmitRequest, stored bool, _ *wire.Error) {
	prefix, wrong := readPrompt(r.GetPrompt())
	if wrong == nil {
		wrong = s.whole(len(prefix.Tokens))
	}
	retention, unread := readRetention(r.GetRetention())
	if wrong == nil {
		wrong = unread
	}
	if wrong != nil {
		return request, false, wrong
	}
	// An admission reuses all tokens but the last. One token more tells whether the last block
	// is stored, too.
	more := prefix
	more.Tokens = append(slices.Clip(prefix.Tokens), 0)
	found, err := s.in.engine.Lookup(ctx, more)
	request = kvactor.AdmitRequest{
		Namespace: prefix.Namespace, Tokens: prefix.Tokens, Multimodal: prefix.Multimodal,
		// the match has counted the request
		Retention: retention, Session: r.GetSession(), Readmitted: true,
	}
	return request, found.MatchedTokens == len(prefix.Tokens), refusal(s.in.note(err))
}

// reserved fills in the answer of a reservation: pages of what is stored are not to be written.
func (s *session) reserved(out *wire.Reserved, q *kvactor.Sequence) {
	out.Handle, out.Tokens = s.keep(&handle{sequence: q, write: true}), uint32(q.Reused())
	stored := q.Reused() / s.in.geometry.cache.TokensPerBlock
	for p, table := range q.Tables() {
		packed := packPages(table[0])
		if s.in.pools[p].Kind == kvactor.KindAttention {
			for at := range stored * tokenBytes {
				packed[at] = 0xFF // -1
			}
		}
		out.Pages = append(out.Pages, packed)
	}
	for _, at := range q.Admitted().Checkpoints {
		out.Checkpoints = append(out.Checkpoints, uint32(at))
	}
}
