package wire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A field that is not known is refused wherever it is, and named by its message and number.
func TestUnknownFieldsAreRefused(t *testing.T) {
	r := &Request{Op: &Request_Step{Step: &Step{
		Releases: []uint64{1},
		Matches: []*Match{{Fetch: true},
			{Prompt: &Prompt{Tokens: []byte("1234"), Items: []*Item{{}, {Start: 1}}}}},
	}}}
	prompt := r.GetStep().GetMatches()[1].GetPrompt()
	for _, m := range []proto.Message{r, r.GetStep(), r.GetStep().GetMatches()[0], prompt,
		prompt.GetItems()[1]} {
		at := m.ProtoReflect()
		at.SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
		frame, err := Append(nil, r)
		require.NoError(t, err)
		at.SetUnknown(nil)
		body, err := Read(bytes.NewReader(frame), nil, len(frame))
		require.NoError(t, err)
		err = Decode(body, &Request{})
		require.ErrorIs(t, err, ErrGarbage)
		require.ErrorContains(t, err, string(at.Descriptor().Name())+" has no field 99")
	}
	frame, err := Append(nil, r)
	require.NoError(t, err)
	require.NoError(t, Decode(frame[headBytes:], &Request{}))
}
