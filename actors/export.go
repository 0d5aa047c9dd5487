package actors

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/kvactor/kvactor/actors/internal/handover"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Exported is a sequence that was written, whose pages the source still holds.
type Exported struct {
	Pages int   // that were written
	Bytes int64 // of the stream

	exchange *exchange
	hold     messages.SequenceID
	released atomic.Bool
}

// Release ends the hold on the pages, when the host knows that the receiver has them. Those that
// are stored stay in the cache until they are evicted. A second Release does nothing. An engine
// that has ended holds nothing: the error then is that of any other call.
//
// A Release that an ended context has refused may be called again: released is set only
// when the request is sent.
func (x *Exported) Release(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if x.released.Swap(true) {
		return nil
	}
	return x.exchange.discard(x.hold, messages.Ticket{})
}

// Export writes a running sequence to w, for Import of an engine with the same pools. The
// prompt must be computed. What is written is the sequence as it is now: its tokens, those
// that are not computed included, and its computed contents. No kernel of the sequence may be
// under way when Export is called. From the first byte that is written, or an error, the
// sequence may go on, be exported once more or be released.
//
// The pages are held until Exported.Release, also when the sequence is released. While they
// are held, the sequence copies its last, partial block when it next writes to it, as if it
// had been forked, and a model with recurrent layers holds one further page in each state
// pool: ErrOutOfPages names the pool that has none. With an error nothing is held.
func (h Handovers) Export(
	ctx context.Context, id messages.SequenceID, w io.Writer,
) (*Exported, error) {
	return h.export(ctx, id, "Export: the writer", w, nil)
}

// Send hands a running sequence over to Receive at the other end of a connection, and
// returns when the receiver has it. Only pages that the receiver lacks go over the
// connection. The pages are held until the receiver has acknowledged them; with an error,
// they are held no longer than the sequence holds them itself. The sequence goes on either
// way: the host releases it, before or after. If the connection breaks after the last page,
// the receiver may have the sequence although Send has failed.
func (h Handovers) Send(
	ctx context.Context, id messages.SequenceID, connection io.ReadWriter,
) (*Exported, error) {
	return h.export(ctx, id, "Send: the connection", connection, connection)
}

// export writes a sequence; with answers, it reads those of the receiver, and ends the hold.
//
// The hold is made first: what is described afterwards cannot change, although the
// sequence goes on.
func (h Handovers) export(
	ctx context.Context, id messages.SequenceID, name string, w io.Writer, answers io.Reader,
) (*Exported, error) {
	s, err := h.engine.exchange.begin(ctx, name, w, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	hold, err := s.hold(id)
	if err != nil {
		return nil, s.failure(err)
	}
	x, err := s.write(hold, w, answers)
	if err != nil {
		err = s.failure(err)
		// The error of the hand-over says more than that of a release after it.
		_ = s.exchange.discard(hold, messages.Ticket{})
		return nil, err
	}
	if answers != nil {
		// The receiver has the sequence: an engine that cannot serve the release has ended, and
		// holds nothing.
		_ = x.Release(context.WithoutCancel(ctx))
	}
	return x, nil
}

// hold makes a fork of the sequence, which holds its pages as they are now.
//
// Its references keep the pages from being evicted, and copy on write keeps their
// contents. But for states, which every kernel overwrites, it copies no page. The host is
// told of no ticket of these copies, so they are waited for here, whatever becomes of the
// caller's context: the sequence goes on after an error, too.
func (s *session) hold(id messages.SequenceID) (messages.SequenceID, error) {
	// A fork is refused for the same reasons, in words of its own.
	if _, err := s.describe(id); err != nil {
		return 0, err
	}
	m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: id, Count: 1}}}
	if err := first(s.do(m), &m.Err); err != nil {
		return 0, err
	}
	result := &m.Results[0]
	err := result.Err
	for _, t := range result.Ready {
		err = errors.Join(err, s.engine.config.Device.Sync(s.engine.background.ctx, t))
	}
	if err != nil && len(result.Forks) > 0 {
		_ = s.exchange.discard(result.Forks[0], messages.Ticket{}) // the engine has ended
	}
	if err != nil {
		return 0, err
	}
	return result.Forks[0], nil
}

// describe reads what a sequence is.
func (s *session) describe(id messages.SequenceID) (*protocol.DescribeSequence, error) {
	d := &protocol.DescribeSequence{Sequence: id}
	return d, first(s.do(d), &d.Err)
}

// write writes the stream of a sequence.
//
// The order is that of the stream (package handover).
func (s *session) write(
	hold messages.SequenceID, w io.Writer, answers io.Reader,
) (*Exported, error) {
	d, err := s.describe(hold)
	if err != nil {
		return nil, err
	}
	shape, err := s.shape()
	if err != nil {
		return nil, err
	}
	out, from := handover.NewWriter(w), handover.NewReader(answers)
	opening := handover.Opening{Answers: answers != nil, Shape: *shape,
		Sequence: handover.SequenceOf(&d.State)}
	if err := out.Open(&opening); err != nil {
		return nil, err
	}
	places := s.engine.validate.CarriedPages(d.State.Computed, d.State.Input)
	if answers != nil {
		wanted, err := from.Answer(len(places))
		if err != nil {
			return nil, err
		}
		kept := places[:0]
		for i, at := range places {
			if wanted[i] {
				kept = append(kept, at)
			}
		}
		places = kept
	}
	if err := s.stage(); err != nil {
		return nil, err
	}
	if err := s.writePages(out, hold, places); err != nil {
		return nil, err
	}
	if answers != nil {
		if _, err := from.Answer(0); err != nil {
			return nil, err
		}
	}
	return &Exported{Pages: len(places), Bytes: out.Bytes(), exchange: s.exchange, hold: hold}, nil
}

// writePages writes pages in batches: while one is written, the device copies the next.
//
// The loop has two batches of staging memory in turn. It orders the copies of the next
// batch before it waits for those of this one: the device copies while the connection
// carries bytes. A batch is read into again only after its pages were written, so its
// memory is never on the wire and under a copy at the same time.
func (s *session) writePages(
	out *handover.Writer, hold messages.SequenceID, places []protocol.PagePlace,
) error {
	var batches [2][]protocol.TransferItem
	read := func(b int) error {
		n := min(s.staging.batch, len(places))
		batches[b] = batches[b][:0]
		for i, at := range places[:n] {
			batches[b] = append(batches[b], protocol.TransferItem{PagePlace: at, Slot: s.staging.slot(b, i)})
		}
		places = places[n:]
		if err := s.sync(b); err != nil { // of the hand-over that had the memory before
			return err
		}
		return s.transfer(b, hold, batches[b])
	}
	if err := read(0); err != nil {
		return err
	}
	for b := 0; len(batches[b]) > 0; b = 1 - b {
		if err := read(1 - b); err != nil {
			return err
		}
		if err := s.sync(b); err != nil {
			return err
		}
		for i := range batches[b] {
			it := &batches[b][i]
			page := s.staging.read(it.Slot, s.engine.pools[it.Pool].PageBytes)
			if err := out.Page(page); err != nil {
				return err
			}
		}
	}
	return nil
}

// transfer orders the copies of a batch.
//
// Items are read by the engine until do returns. The ticket is noted even with an error:
// the device may have taken the copies before the one that it refused.
func (s *session) transfer(batch int, id messages.SequenceID, items []protocol.TransferItem) error {
	if len(items) == 0 {
		return nil
	}
	m := &protocol.TransferPages{Sequence: id, In: s.in, Staging: int32(s.staging.pool), Items: items}
	if err := s.do(m); err != nil {
		s.lost = true // the engine may have submitted the copies
		return err
	}
	if !m.Ticket.IsZero() {
		s.staging.tickets[batch], s.last = m.Ticket, m.Ticket
	}
	return m.Err
}
