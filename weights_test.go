package kvactor_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
)

// A sequence goes only to an engine that has the weights that it was computed by.
func TestImportOfOtherWeights(t *testing.T) {
	from, to := open(t, 12), open(t, 12)
	defer shut(t, from)
	defer shut(t, to)
	s, err := from.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	var stream bytes.Buffer
	_, err = from.Export(ctx, s, &stream)
	require.NoError(t, err)
	written := stream.Bytes()

	require.NoError(t, to.SetWeights(ctx, "v2"))
	_, err = to.Import(ctx, bytes.NewReader(written))
	require.ErrorIs(t, err, kvactor.ErrNotSupported)
	assert.ErrorContains(t, err, `weights "", the engine has "v2"`)
	require.NoError(t, to.SetWeights(ctx, ""))
	in, err := to.Import(ctx, bytes.NewReader(written))
	require.NoError(t, err)
	require.NoError(t, in.Sequence.Release(ctx, kvactor.Ticket{}))
}

// A hand-over without a stream is refused.
func TestHandOversWithoutAStream(t *testing.T) {
	e := open(t, 12)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 3, kvactor.Ticket{}))
	_, export := e.Export(ctx, s, nil)
	_, send := e.Send(ctx, s, nil)
	_, imported := e.Import(ctx, nil)
	_, received := e.Receive(ctx, nil)
	for want, err := range map[string]error{
		"Export: the writer is nil": export, "Send: the connection is nil": send,
		"Import: the reader is nil": imported, "Receive: the connection is nil": received,
	} {
		assert.EqualError(t, err, want)
		assert.ErrorIs(t, err, kvactor.ErrBadRequest)
	}
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}
