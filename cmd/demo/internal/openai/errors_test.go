package openai

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
)

// A wrong type is named in the words of JSON, beside what it should be: none of Go's.
func TestErrorsNameTypes(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	for _, c := range []struct{ path, body, want string }{
		{chats, `[]`, "the body cannot be read: it is a list, not an object"},
		{chats, `7`, "the body cannot be read: it is a number, not an object"},
		{chats, `{"a":`, "the body cannot be read: its JSON ends too early"},
		{chats, chatBody(`,"max_tokens":"x"`, "a"), "max_tokens: it is a string, not an integer"},
		{chats, chatBody(`,"max_tokens":1.5`, "a"), "max_tokens: 1.5 is not an integer"},
		{chats, chatBody(`,"max_tokens":99999999999999999999`, "a"),
			"max_tokens: 99999999999999999999 is too large"},
		{chats, chatBody(`,"temperature":[]`, "a"), "temperature: it is a list, not a number"},
		{chats, chatBody(`,"temperature":1e999`, "a"), "temperature: 1e999 is too large"},
		{chats, chatBody(`,"stream":"yes"`, "a"), "stream: it is a string, not true or false"},
		{chats, chatBody(`,"stop":[1]`, "a"), "stop: it is a number, not a string"},
		{chats, chatBody(`,"stop":{}`, "a"), "stop: it is an object, not a list"},
		{chats, chatBody(`,"logit_bias":[]`, "a"), "logit_bias: it is a list, not an object"},
		{chats, chatBody(`,"logit_bias":{"1":"x"}`, "a"), "logit_bias: it is a string, not a number"},
		{chats, chatBody(`,"seed":1e50`, "a"), "seed: 1e50 is not an integer"},
		{chats, chatBody(`,"stop_token_ids":[true]`, "a"),
			"stop_token_ids: it is true or false, not an integer"},
		{chats, chatBody(`,"stop_token_ids":[99999999999]`, "a"),
			"stop_token_ids: 99999999999 is too large"},
		{chats, chatBody(`,"stream_options":5,"stream":true`, "a"),
			"stream_options: it is not an object"},
		{chats, `{"model":7}`, "model: it is a number, not a string"},
		{chats, `{"model":"m","messages":[1]}`, "messages: it is not a list of objects"},
		{"/detokenize", `{"tokens":"x"}`, "tokens: it is a string, not a list"},
	} {
		status, text := s.post(c.path, c.body)
		require.Equal(t, 400, status, c.body)
		assert.Contains(t, string(text), `"`+c.want+`"`, c.body)
	}
}
