package actors

import (
	"context"
	"fmt"
	"io"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/internal/handover"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Imported is a sequence that has come from another engine.
type Imported struct {
	Sequence   messages.SequenceID
	Namespace  messages.Namespace
	Session    string
	Retention  *messages.Retention
	Tokens     []messages.Token
	Multimodal []messages.MultimodalItem
	Prompt     int // leading tokens that are the prompt
	Computed   int // leading tokens whose contents are in the pages
	Tables     messages.Tables
	// Of an encoder–decoder model: its input, whose contents are in the last of Tables.
	Encoder          []messages.Token
	EncoderItems     []messages.MultimodalItem
	EncoderRetention *messages.Retention
	Ready            []messages.Ticket // must have passed before the pages are read or written

	Pages       int   // that have come
	SharedPages int   // that the engine had, and that the sequence shares
	Bytes       int64 // of the stream
}

// Import reads a sequence that Export has written, and admits it. It has pages for all its
// tokens, and can be decoded when the copies to them are over, as Ready says. Contents of
// the stream that the engine has on its device already are read and dropped.
//
// All or nothing: with an error there is no sequence, nothing is stored, and no page is
// held; what was evicted for its pages is gone, as with an admission that is released at
// once. ErrBadStream says that the stream is damaged or ends too early, ErrNotSupported in
// which field the source differs from this engine, and ErrOutOfPages which pool has too
// few pages. Import reads no byte beyond the end of the stream.
func (h Handovers) Import(ctx context.Context, r io.Reader) (*Imported, error) {
	return h.receive(ctx, "Import: the reader", r, nil)
}

// Receive is Import over a connection to Send: it says which pages are to come, and
// acknowledges the sequence when it has all of it.
func (h Handovers) Receive(ctx context.Context, connection io.ReadWriter) (*Imported, error) {
	return h.receive(ctx, "Receive: the connection", connection, connection)
}

// arrival is an import on its way.
//
// begun is a request whose answer names the sequence and the pages that the engine lacks;
// places is parallel to its Missing.
type arrival struct {
	*session
	from    *handover.Reader
	answers *handover.Writer // nil: the source reads none
	awaited bool             // the source reads the next answer now, and writes nothing before
	begun   *protocol.BeginImport
	places  []protocol.PagePlace
}

// receive reads a stream. An error goes to the source, too, if it reads answers.
//
// The source is told of a refusal so that it does not wait for an answer until its own time
// is over. While it writes, it reads nothing: on a connection that holds no bytes, such as a
// net.Pipe, both sides would write, and neither would end. It then learns of the error when
// the connection is closed.
func (h Handovers) receive(
	ctx context.Context, name string, r io.Reader, w io.Writer,
) (*Imported, error) {
	s, err := h.engine.exchange.begin(ctx, name, r, true)
	if err != nil {
		return nil, err
	}
	defer s.close()
	a := &arrival{session: s, from: handover.NewReader(r)}
	m, err := a.read(w)
	if err != nil {
		err = s.failure(err)
		if a.answers != nil && a.awaited {
			_ = a.answers.Refuse(err) // the connection may be what has failed
		}
		return nil, err
	}
	return m, nil
}

// read reads the stream and completes the sequence.
//
// Up to BeginImport there is nothing to undo. From then on the sequence exists, and every
// error releases it; the release names the last copy to its pages, so that their next owner
// waits for it.
func (a *arrival) read(w io.Writer) (*Imported, error) {
	if err := a.open(w); err != nil {
		return nil, err
	}
	if err := first(a.do(a.begun), &a.begun.Err); err != nil {
		return nil, err
	}
	m, err := a.fill()
	if err == nil && a.answers != nil {
		err = a.answers.Answer(nil)
	}
	if err != nil {
		err = a.failure(err)
		// The error of the hand-over says more than that of a release after it.
		_ = a.exchange.discard(a.begun.Sequence, a.last)
		return nil, err
	}
	return m, nil
}

// open reads the opening, and compares the shapes.
//
// All that can be refused is refused here, before a page is taken. The source has written the
// opening whole and reads the refusal.
func (a *arrival) open(w io.Writer) error {
	opening, err := a.from.Opening()
	if err != nil {
		return err
	}
	if opening.Answers && w == nil {
		return refusals.New(messages.ErrBadRequest,
			"hand-over: the source waits for answers: a stream of Send is for Receive")
	}
	if opening.Answers {
		a.answers, a.awaited = handover.NewWriter(w), true
	}
	own, err := a.shape()
	if err != nil {
		return err
	}
	if different := own.Difference(&opening.Shape); different != "" {
		return refusals.New(messages.ErrNotSupported, "hand-over: the source is another engine: %s",
			different)
	}
	a.begun = opening.Sequence.Import()
	if err := a.readInput(); err != nil {
		return err
	}
	if err := a.engine.validate.ValidateImport(a.begun); err != nil {
		return err
	}
	a.places = a.engine.validate.CarriedPages(a.begun.Computed, len(a.begun.Prompt.Encoder))
	return a.stage()
}

// readInput reads the encoder's input from its key, which is a part of the namespace.
func (a *arrival) readInput() error {
	p := &a.begun.Prompt
	if p.Namespace.Encoder == "" {
		return nil
	}
	var ok bool
	if p.Encoder, p.EncoderItems, ok = coordinator.ParseEncoderKey(p.Namespace.Encoder); !ok {
		return fmt.Errorf("%w: the key of the encoder's input", handover.ErrCorrupt)
	}
	p.Namespace.Encoder = ""
	return nil
}

// fill reads the pages and makes the sequence one that runs.
//
// The commit comes after the whole stream has been verified: it is what stores the blocks, and
// other requests could match damaged contents from then on. It names the last copy as the kernel
// that writes the pages, so the host does not wait for the device here.
func (a *arrival) fill() (*Imported, error) {
	if a.answers != nil {
		a.awaited = false
		if err := a.answers.Answer(a.begun.Missing); err != nil {
			return nil, err
		}
	}
	if err := a.readPages(); err != nil {
		return nil, err
	}
	a.awaited = true
	commit := &messages.Commit{Steps: []messages.CommitStep{{Sequence: a.begun.Sequence,
		Computed: a.begun.Computed, After: a.last}}}
	if err := first(a.do(commit), &commit.Err); err != nil {
		return nil, err
	}
	if err := commit.Results[0].Err; err != nil {
		return nil, err
	}
	d, err := a.describe(a.begun.Sequence)
	if err != nil {
		return nil, err
	}
	return a.imported(d), nil
}

// imported is the answer.
func (a *arrival) imported(d *protocol.DescribeSequence) *Imported {
	p := &a.begun.Prompt
	m := &Imported{
		Sequence: a.begun.Sequence, Namespace: p.Namespace, Session: p.Session, Retention: p.Retention,
		Tokens: p.Tokens, Multimodal: p.Multimodal, Prompt: a.begun.Length, Computed: a.begun.Computed,
		Encoder: p.Encoder, EncoderItems: p.EncoderItems, EncoderRetention: p.EncoderRetention,
		Tables: d.Tables, Ready: d.Ready, Bytes: a.from.Bytes(),
	}
	for _, missing := range a.begun.Missing {
		if missing {
			m.Pages++
		} else {
			m.SharedPages++
		}
	}
	return m
}

// readPages reads the pages that come, in batches: while one is read from the connection,
// the device copies the one before.
//
// Pages come in the order of CarriedPages, which both ends compute. A batch of staging memory is
// filled only when the copies from it have passed; while they run, the other batch is filled from
// the connection.
func (a *arrival) readPages() error {
	var batch []protocol.TransferItem
	b := 0
	for i, at := range a.places {
		missing := a.begun.Missing[i]
		if a.answers != nil && !missing {
			continue // the source has been told
		}
		if len(batch) == 0 {
			if err := a.sync(b); err != nil {
				return err
			}
		}
		slot := a.staging.slot(b, len(batch))
		if err := a.ctx.Err(); err != nil {
			return err
		}
		a.noteWrite(slot)
		if err := a.staging.fill(slot, a.engine.pools[at.Pool].PageBytes, a.from.Page); err != nil {
			return err
		}
		if !missing {
			continue // the next page overwrites it
		}
		if batch = append(batch, protocol.TransferItem{PagePlace: at, Slot: slot}); len(
			batch) < a.staging.batch {
			continue
		}
		if err := a.transfer(b, a.begun.Sequence, batch); err != nil {
			return err
		}
		batch, b = batch[:0], 1-b
	}
	return a.transfer(b, a.begun.Sequence, batch)
}

// noteWrite tells a device that watches accesses of the write. The checker has one clock
// for the CPU, so a scope that stays open while bytes come would put the copies of other
// hand-overs in doubt; one that ends at once orders the write before the copy all the same.
func (a *arrival) noteWrite(slot messages.PageID) {
	a.exchange.mu.Lock()
	defer a.exchange.mu.Unlock()
	gpu.HostWrite(a.staging.device, gpu.Slot{Pool: a.staging.pool, Tier: messages.Secondary,
		Page: slot})()
}
