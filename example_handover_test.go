package kvactor_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
)

// A prefill server computes a prompt and a decode server goes on with it. The pages of the
// prefill server are held until the receiver has acknowledged them.
func ExampleEngine_Send() {
	prefill, decode := small(), small()
	defer closeEngine(prefill)
	defer closeEngine(decode)
	here, there := net.Pipe() // a TCP connection between two servers

	var sender sync.WaitGroup
	sender.Go(func() {
		s, err := prefill.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5, 6}})
		must(err)
		must(s.Commit(ctx, 6, kvactor.Ticket{})) // a host's kernel has computed the prompt
		must(s.Append(ctx, 7))                   // and sampled the first token
		_, err = prefill.Send(ctx, s, here)
		must(err)
		must(s.Release(ctx, kvactor.Ticket{}))
		must(here.Close())
	})

	in, err := decode.Receive(ctx, there)
	must(err)
	s := in.Sequence
	fmt.Println(in.Tokens, "of which", s.Computed(), "are computed,", in.Pages, "pages")
	must(s.Append(ctx, 8)) // kernels wait for s.Ready before
	must(s.Commit(ctx, 8, kvactor.Ticket{}))
	must(s.Release(ctx, kvactor.Ticket{}))
	must(there.Close())
	sender.Wait()
	// Output:
	// [1 2 3 4 5 6 7] of which 6 are computed, 2 pages
}

// Where nothing can be answered, such as a file, the host says when the pages need not be
// held any longer.
func ExampleEngine_Export() {
	source, receiver := small(), small()
	defer closeEngine(source)
	defer closeEngine(receiver)
	s, err := source.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	must(err)
	must(s.Commit(ctx, 5, kvactor.Ticket{}))
	var file bytes.Buffer
	held, err := source.Export(ctx, s, &file)
	must(err)
	in, err := receiver.Import(ctx, &file)
	must(err)
	must(held.Release(ctx))
	fmt.Println(in.Sequence.Computed(), "tokens have come")

	_, err = receiver.Import(ctx,
		bytes.NewReader([]byte("kvho and something else, which is no stream of an engine")))
	fmt.Println(err)
	must(in.Sequence.Release(ctx, kvactor.Ticket{}))
	must(s.Release(ctx, kvactor.Ticket{}))
	// Output:
	// 5 tokens have come
	// hand-over: the stream is damaged: check of the header
}

// Two models of one shape have different weights: with their names a hand-over between
// them is refused.
func ExampleEngine_Import_named() {
	source := small(actors.WithHandover(actors.HandoverConfig{Model: "base"}))
	receiver := small(actors.WithHandover(actors.HandoverConfig{Model: "base, fine-tuned"}))
	defer closeEngine(source)
	defer closeEngine(receiver)
	s, err := source.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	must(err)
	must(s.Commit(ctx, 5, kvactor.Ticket{}))
	var file bytes.Buffer
	held, err := source.Export(ctx, s, &file)
	must(err)
	_, err = receiver.Import(ctx, &file)
	fmt.Println(errors.Is(err, kvactor.ErrNotSupported), err)
	must(held.Release(ctx))
	must(s.Release(ctx, kvactor.Ticket{}))
	// Output:
	// true hand-over: the source is another engine: model is base, fine-tuned here, base in the stream
}
